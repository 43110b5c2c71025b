#include "runtime/data/data_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json/json_writer.h"
#include "base/quantity.h"

namespace strata::runtime {

namespace {

// A source's share of the first micro-batches of a run.
struct Share {
  std::uint64_t taken, sequences;
  double of_all, epochs;
};

Share share_of(const Batches& batches, std::size_t source, std::uint64_t micro_batches) {
  std::uint64_t all = 0;
  for (std::size_t s = 0; s < batches.sources().size(); ++s) all += batches.taken(s, micro_batches);
  const std::uint64_t taken = batches.taken(source, micro_batches);
  const std::uint64_t sequences = batches.sources()[source].sequences->size();
  return {taken, sequences, all == 0 ? 0 : static_cast<double>(taken) / static_cast<double>(all),
          static_cast<double>(taken) / static_cast<double>(sequences)};
}

double left_over(const PackingFigures& figures, std::uint64_t sequences, std::int64_t seq_len) {
  return 1 - static_cast<double>(figures.rows) / (static_cast<double>(sequences) * static_cast<double>(seq_len));
}

}  // namespace

std::vector<std::string> packing_texts(const PackingFigures& figures, std::uint64_t sequences, std::int64_t seq_len) {
  std::vector<std::string> out = {
      fmt::format("{:.1f}% of positions unused", 100 * left_over(figures, sequences, seq_len))};
  const auto longer = [&](std::uint64_t documents, const char* what) {
    if (documents > 0)
      out.push_back(fmt::format("{} longer than {} tokens {}", counted(documents, "document"), seq_len, what));
  };
  longer(figures.cut, "split");
  longer(figures.dropped, "dropped");
  if (figures.without_label)
    out.push_back(fmt::format("{} without trainable tokens left out", counted(figures.without_label, "document")));
  return out;
}

std::vector<std::string> describe_data(const Batches& batches, const Recipe& recipe, std::uint64_t micro_batches) {
  std::vector<std::string> out;
  const std::size_t sources = batches.sources().size();
  for (std::size_t s = 0; s < sources; ++s) {
    const Share share = share_of(batches, s, micro_batches);
    std::string line = "data";
    if (sources > 1) {
      const auto& files = recipe.data.train[s].files;
      line +=
          fmt::format(" of {}{}", files.front(), files.size() > 1 ? fmt::format(" and {} more", files.size() - 1) : "");
    }
    line += ": " + counted(share.sequences, "sequence");
    if (const PackingFigures* figures = batches.sources()[s].sequences->packing())
      line += fmt::format(" of {}, {}", counted(figures->documents, "document"),
                          fmt::join(packing_texts(*figures, share.sequences, recipe.data.seq_len), ", "));
    if (sources > 1) line += fmt::format(", {:.1f}% of the run", 100 * share.of_all);
    out.push_back(line + fmt::format(", {:.2f} epochs", share.epochs));
  }
  return out;
}

std::string data_json(const Batches& batches, const Recipe& recipe, std::uint64_t micro_batches) {
  JsonArray out;
  for (std::size_t s = 0; s < batches.sources().size(); ++s) {
    const Share share = share_of(batches, s, micro_batches);
    JsonObject source;
    source.add("files", JsonArray().add_all(recipe.data.train[s].files))
        .add("sequences", share.sequences)
        .add("taken", share.taken)
        .add("share", Decimals{share.of_all, 6})
        .add("epochs", Decimals{share.epochs, 6});
    if (const PackingFigures* figures = batches.sources()[s].sequences->packing())
      source.add("documents", figures->documents)
          .add("rows", figures->rows)
          .add("left_over", Decimals{left_over(*figures, share.sequences, recipe.data.seq_len), 6})
          .add("cut", figures->cut)
          .add("dropped", figures->dropped)
          .add("without_label", figures->without_label);
    out.add(source);
  }
  return out.text();
}

}  // namespace strata::runtime
