#include "text/split/pre_tokenizer.h"

namespace strata::text {

Cut combined(Cut first, Cut second) {
  if (first == Cut::unsafe || second == Cut::unsafe) return Cut::unsafe;
  return first == Cut::makes ? first : second;
}

}  // namespace strata::text
