#include "launcher/measure/bench/random_documents.h"

#include <algorithm>
#include <random>
#include <vector>

#include "base/atomic_file.h"
#include "runtime/data/files/tokens.h"
#include "text/token_writer.h"

namespace strata::launcher {

void write_random_documents(const std::filesystem::path& path, std::int64_t vocabulary, std::int64_t longest,
                            std::uint64_t tokens) {
  AtomicFile file(path), documents(runtime::documents_path(path)), sidecar_file(runtime::sidecar_path(path));
  // The last one stands for a token to be predicted, in models that are trained so.
  const auto mask = static_cast<std::uint32_t>(std::max<std::int64_t>(vocabulary - 1, 1));
  const int width = vocabulary <= 65536 ? 2 : 4;
  text::TokenWriter writer(file, documents, nullptr, width, {});
  std::mt19937_64 random(20261122);
  std::vector<std::uint32_t> document;
  const auto most = static_cast<std::uint64_t>(longest), least = std::max<std::uint64_t>(most / 8, 1);
  while (writer.count() < tokens) {
    document.resize(least + random() % (most - least + 1));
    for (std::uint32_t& token : document)
      token = static_cast<std::uint32_t>(random() % static_cast<std::uint64_t>(mask));
    writer.begin_document();
    writer.add(document);
  }
  writer.finish();
  runtime::TokenSidecar sidecar{vocabulary, width, "random", "", writer.hash(), writer.count()};
  sidecar.documents = {writer.documents(), writer.documents_hash()};
  sidecar.mask_token = mask;
  sidecar.special_tokens = {{mask}};
  sidecar_file.write(runtime::to_json(sidecar));
  documents.commit();
  file.commit();
  sidecar_file.commit();
}

}  // namespace strata::launcher
