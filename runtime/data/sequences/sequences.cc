#include "runtime/data/sequences/sequences.h"

#include "runtime/data/sequences/next_token.h"

namespace strata::runtime {

Sequences::Sequences(std::vector<TokenFile> files, std::shared_ptr<Labelling> labelling)
    : files_(std::move(files)), labelling_(labelling ? std::move(labelling) : std::make_shared<NextToken>()) {}

}  // namespace strata::runtime
