#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <string>

#include "runtime/run/metrics/class_metrics.h"
#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

using simdjson::dom::element;

std::vector<std::string> texts(const element& list) {
  std::vector<std::string> out;
  for (const element text : list.get_array()) out.emplace_back(text.get_string().value());
  return out;
}
std::vector<std::size_t> places(const element& tags, const std::vector<std::string>& names) {
  std::vector<std::size_t> out;
  for (const std::string& tag : texts(tags))
    out.push_back(static_cast<std::size_t>(std::ranges::find(names, tag) - names.begin()));
  return out;
}

// Values made by seqeval (tests/golden/make_entities.py).
TEST(EntityMetricsTest, SeqevalsNumbers) {
  simdjson::dom::parser parser;
  const element root = parser.load((tests::source_dir() / "tests/golden/metrics/entities.json").string()).value();
  std::size_t n = 0, found = 0;
  for (const element golden : root["cases"].get_array()) {
    SCOPED_TRACE(n++);
    const std::vector<std::string> names = texts(golden["names"]);
    const EntityTags tags(names);
    EntityTally tally(names);
    for (std::size_t i = 0; i < golden["there"].get_array().size(); ++i) {
      const auto there = places(golden["there"].at(i), names);
      tally.add(there, places(golden["said"].at(i), names));
      const std::vector<Entity> entities = tags.entities(there);
      ASSERT_EQ(entities.size(), golden["entities"].at(i).get_array().size()) << i;
      for (std::size_t e = 0; e < entities.size(); ++e, ++found) {
        const element wanted = golden["entities"].at(i).at(e);
        EXPECT_EQ(entities[e].begin, wanted.at(1).get_uint64().value()) << i;
        EXPECT_EQ(entities[e].end, wanted.at(2).get_uint64().value()) << i;
        // Of the word that it begins with, behind "B-" or "I-".
        EXPECT_EQ(names[there[entities[e].begin]].substr(2), wanted.at(0).get_string().value()) << i;
      }
    }
    // Quotients of the same whole numbers; F1 of seqeval is of rounded ones.
    const ClassQuality quality = tally.counts().quality();
    EXPECT_EQ(quality.precision, golden["precision"].get_double().value());
    EXPECT_EQ(quality.recall, golden["recall"].get_double().value());
    EXPECT_NEAR(quality.f1, golden["f1"].get_double().value(), 1e-15);
  }
  EXPECT_EQ(n, 7u);
  EXPECT_GT(found, 200u);
}

}  // namespace
}  // namespace strata::runtime
