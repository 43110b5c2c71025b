#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/files/atomic_file.h"
#include "base/json/json_writer.h"
#include "launcher/measure/bench/bench.h"
#include "runtime/data/files/tokens.h"
#include "text/token_writer.h"

namespace strata::launcher {

namespace {

// The line of a document in OUT.bin.labels.jsonl.
std::string label_line(const RandomLabels& labels, std::size_t tokens, std::mt19937_64& random) {
  constexpr JsonLayout kLayout = JsonLayout::spaced;
  JsonObject line(kLayout);
  const auto name = [&] { return labels.names[random() % labels.names.size()]; };
  if (labels.problem == "regression") {
    line.add("label", Decimals{static_cast<double>(random() % 1000) / 1000, 3});
  } else if (labels.problem == "single_label_classification") {
    line.add("label", name());
  } else {
    JsonArray all(kLayout);
    const std::size_t words = labels.problem == "token_classification" ? tokens : 1;
    for (std::size_t i = 0; i < words; ++i) all.add(name());
    line.add("labels", all);
  }
  return line.text() + "\n";
}

}  // namespace

void write_random_documents(const std::filesystem::path& path, std::int64_t vocabulary, std::int64_t longest,
                            std::uint64_t tokens, const RandomLabels& labels) {
  AtomicFile file(path), documents(runtime::documents_path(path)), sidecar_file(runtime::sidecar_path(path));
  // The last id is the mask token, for models that are trained to predict masked tokens.
  const auto mask = static_cast<std::uint32_t>(std::max<std::int64_t>(vocabulary - 1, 1));
  const int width = vocabulary <= 65536 ? 2 : 4;
  text::TokenWriter writer(file, documents, nullptr, width, {});
  std::mt19937_64 random(20261122);
  std::vector<std::uint32_t> document;
  std::string lines;
  const auto most = static_cast<std::uint64_t>(longest), least = std::max<std::uint64_t>(most / 8, 1);
  while (writer.count() < tokens) {
    document.resize(least + random() % (most - least + 1));
    for (std::uint32_t& token : document)
      token = static_cast<std::uint32_t>(random() % static_cast<std::uint64_t>(mask));
    writer.begin_document();
    writer.add(document);
    if (!labels.problem.empty()) lines += label_line(labels, document.size(), random);
  }
  writer.finish();
  runtime::TokenSidecar sidecar{vocabulary, width, "random", "", writer.hash(), writer.count()};
  sidecar.documents = {writer.documents(), writer.documents_hash()};
  sidecar.mask_token = mask;
  sidecar.special_tokens = {{mask}};
  if (!labels.problem.empty()) {
    AtomicFile file_of_labels(runtime::labels_path(path));
    file_of_labels.write(lines);
    file_of_labels.commit();
    sidecar.labels = {writer.documents(), fmt::format("{:016x}", XXH3_64bits(lines.data(), lines.size())),
                      labels.problem, labels.names};
  }
  sidecar_file.write(runtime::to_json(sidecar));
  documents.commit();
  file.commit();
  sidecar_file.commit();
}

}  // namespace strata::launcher
