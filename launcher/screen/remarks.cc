#include "launcher/screen/remarks.h"

#include "launcher/screen/printable.h"

namespace strata::launcher {

void tell_remarks(std::span<const std::string> remarks) {
  for (const std::string& remark : remarks) note(remark);
}

void tell_remarks(const std::filesystem::path& where, const text::Tokenizer& tokenizer) {
  for (const std::string& remark : tokenizer.remarks()) say("{}: {}", where.string(), remark);
}

void tell_remarks(const text::ChatTemplate& made) {
  tell_remarks(made.remarks());
}

}  // namespace strata::launcher
