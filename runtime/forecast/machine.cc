#include "runtime/forecast/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/json/json_writer.h"
#include "base/quantity.h"
#include "base/quote.h"
#include "runtime/recipe/toml_file.h"
#include "runtime/recipe/value.h"

namespace strata::runtime {
namespace {

// The figures by key: "section.key", which ends in the unit.
using Fields = std::vector<std::pair<std::string, double*>>;

Fields measured_everywhere(Machine& m) {
  Fields fields{{"task_overhead_us", &m.task_overhead_us}};
  for (std::size_t t = 0; t < kDTypeKeys.size(); ++t) {
    fields.emplace_back(fmt::format("attention.{}_gflop_per_s", kDTypeKeys[t]), &m.attention_gflop_per_s[t]);
    fields.emplace_back(fmt::format("loss.{}_gb_per_s", kDTypeKeys[t]), &m.loss_gb_per_s[t]);
    fields.emplace_back(fmt::format("optimizer.moments_{}_gb_per_s", kMomentKeys[t]), &m.optimizer_gb_per_s[t]);
  }
  fields.insert(fields.end(), {{"memory.triad_gb_per_s", &m.triad_gb_per_s},
                               {"memory.device_copy_gb_per_s", &m.device_copy_gb_per_s},
                               {"memory.host_copy_gb_per_s", &m.host_copy_gb_per_s},
                               {"memory.sum_gb_per_s", &m.sum_gb_per_s},
                               {"memory.norm_gb_per_s", &m.norm_gb_per_s}});
  return fields;
}
Fields of_disk(Machine::Disk& d) {
  return {{"disk.drives", &d.drives},
          {"disk.read_gb_per_s", &d.read_gb_per_s},
          {"disk.write_gb_per_s", &d.write_gb_per_s},
          {"disk.read_latency_us", &d.read_latency_us},
          {"disk.write_latency_us", &d.write_latency_us},
          {"disk.both_ways", &d.both_ways},
          {"disk.beside_products", &d.speed_during_products},
          {"disk.slows_products", &d.slows_products}};
}
Fields of_collectives(Machine::Collectives& c) {
  return {{"collectives.all_gather_gb_per_s", &c.all_gather_gb_per_s},
          {"collectives.all_to_all_gb_per_s", &c.all_to_all_gb_per_s}};
}
Fields of_network(Machine::Network& n) {
  return {{"network.gb_per_s", &n.gb_per_s}, {"network.latency_us", &n.latency_us}, {"network.rails", &n.rails}};
}
Fields of_capacity(Machine::Capacity& c) {
  return {{"capacity.device_gib", &c.device_gib}, {"capacity.host_gib", &c.host_gib}};
}
constexpr const char* kHostUpdate = "host.update_gb_per_s";
// The figures that depend on the width: a list for each key.
std::vector<std::pair<std::string, std::vector<double>*>> by_width(Machine& m) {
  std::vector<std::pair<std::string, std::vector<double>*>> lists;
  for (std::size_t t = 0; t < kDTypeKeys.size(); ++t) {
    lists.emplace_back(fmt::format("blocks.{}_gflop_per_s", kDTypeKeys[t]), &m.products_gflop_per_s[t]);
    lists.emplace_back(fmt::format("blocks.{}_elementwise_gb_per_s", kDTypeKeys[t]), &m.elementwise_gb_per_s[t]);
  }
  return lists;
}

// Takes keys out of a file and tracks those that were not taken, to refuse unknown ones.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : path_(path.string()), table_(read_toml(path, "machine file")) {
    for (const auto& [name, node] : table_) {
      const std::string key(name.str());
      if (const toml::table* section = node.as_table())
        for (const auto& [inner, value] : *section) nodes_[key + "." + std::string(inner.str())] = &value;
      else
        nodes_[key] = &node;
    }
  }

  bool has(const std::string& section) const {
    const auto next = nodes_.lower_bound(section + ".");
    return next != nodes_.end() && next->first.starts_with(section + ".");
  }
  bool has_key(const std::string& key) const { return nodes_.contains(key); }
  // True if an optional key has the second of two values; false if it is missing. Refuses any other value.
  bool is(const std::string& key, std::string_view first, std::string_view second) {
    if (!nodes_.contains(key)) return false;
    const std::string word = text(key);
    if (word != first && word != second) refuse(key, fmt::format("\"{}\" or \"{}\"", first, second));
    return word == second;
  }
  double number(const std::string& key) { return number_of(key, take(key)); }
  int count(const std::string& key) {
    const double x = number(key);
    if (x != std::floor(x) || x > 1 << 20) refuse(key, "a whole number, at least 1");
    return static_cast<int>(x);
  }
  std::string text(const std::string& key) {
    const auto* text = take(key).as_string();
    if (!text) refuse(key, "a string");
    return text->get();
  }
  std::vector<double> numbers(const std::string& key) {
    const toml::array* array = take(key).as_array();
    if (!array || array->empty()) refuse(key, "a list of numbers");
    std::vector<double> out;
    for (const toml::node& item : *array) out.push_back(number_of(key, item));
    return out;
  }
  void take(const Fields& fields) {
    for (const auto& [key, value] : fields) *value = number(key);
  }
  void refuse_others() const {
    if (!nodes_.empty()) fail(Exit::usage, "machine file {}: unknown key {}", path_, nodes_.begin()->first);
  }
  [[noreturn]] void refuse(const std::string& key, std::string_view wanted) const {
    fail(Exit::usage, "machine file {}: {} must be {}", path_, key, wanted);
  }

 private:
  const toml::node& take(const std::string& key) {
    const auto found = nodes_.find(key);
    if (found == nodes_.end() && key == "processor")
      fail(Exit::usage, "{} is not a machine file, because it names no processor: strata calibrate -o FILE writes one",
           path_);
    if (found == nodes_.end())
      fail(Exit::usage, "machine file {} has no {}: measure it with strata calibrate -o {}", path_, key,
           shell_word(path_));
    const toml::node& node = *found->second;
    nodes_.erase(found);
    return node;
  }
  double number_of(const std::string& key, const toml::node& node) const {
    const double number = node.is_number() ? node.value<double>().value_or(-1.0) : -1.0;
    // An overhead or a latency may be 0, but a speed may not.
    constexpr std::string_view kMayBeZero[] = {"task_overhead_us",     "spread",
                                               "disk.read_latency_us", "disk.write_latency_us",
                                               "disk.slows_products",  "network.latency_us"};
    const bool may_be_zero = std::ranges::find(kMayBeZero, key) != std::end(kMayBeZero);
    if (may_be_zero && number == 0) return 0;
    if (!(number >= 1e-9 && number <= 1e12))
      refuse(key, may_be_zero ? "0 or a number from 1e-9 to 1e12" : "a number above 0, from 1e-9 to 1e12");
    return number;
  }

  std::string path_;
  toml::table table_;
  std::map<std::string, const toml::node*> nodes_;
};

// Interpolates between the measured widths by the logarithm of the width. Beyond them, uses the nearest measured width.
double at_width(const std::vector<double>& widths, const std::vector<double>& speeds, double width) {
  const auto next = std::upper_bound(widths.begin(), widths.end(), width);
  if (next == widths.begin()) return speeds.front();
  if (next == widths.end()) return speeds.back();
  const auto i = static_cast<std::size_t>(next - widths.begin());
  const double part = std::log(width / widths[i - 1]) / std::log(widths[i] / widths[i - 1]);
  return speeds[i - 1] + part * (speeds[i] - speeds[i - 1]);
}

// The speed of an all-to-all without the sum that follows it. The measured time includes that sum, which the simulator
// adds separately; at least a tenth of the time is left to the exchange. With W ranks, W + 4 bytes of bf16 gradients
// and fp32 sums pass through memory for every W - 1 bytes sent, as ReduceGradient::add counts them.
double exchange_gb_per_s(const Machine& m) {
  const double both = 1 / m.collectives->all_to_all_gb_per_s, ranks = std::max(2, m.ranks);
  const double sum = (ranks + 4) / (ranks - 1) / m.sum_gb_per_s;
  return 1 / std::max(both - sum, 0.1 * both);
}

// Scales the speeds if another number of ranks shares the machine: each rank has the fraction `part` of a measured
// rank's share.
void scale_speeds(MachineProfile& p, double part) {
  for (double* whole : {&p.flops_per_s, &p.attention_flops_per_s, &p.bytes_per_s, &p.loss_bytes_per_s,
                        &p.update_bytes_per_s, &p.memory_bytes_per_s, &p.read_bytes_per_s, &p.write_bytes_per_s})
    *whole *= part;
  for (double* of_one_thread : {&p.host_bytes_per_s, &p.sum_bytes_per_s, &p.norm_bytes_per_s, &p.all_gather_bytes_per_s,
                                &p.all_to_all_bytes_per_s})
    *of_one_thread *= std::min(1.0, part);
  p.cores = std::max(1.0, p.cores * part);
}

}  // namespace

Machine read_machine(const std::filesystem::path& path) {
  Reader reader(path);
  Machine m;
  m.gpu = reader.is("device", "cpu", "gpu");
  m.measured = !reader.is("source", "measured", "data sheets");
  m.processor = reader.text("processor");
  m.ranks = reader.count("ranks");
  m.threads = reader.count("threads");
  if (reader.has_key("spread")) m.spread = reader.number("spread");
  m.widths = reader.numbers("blocks.widths");
  if (std::adjacent_find(m.widths.begin(), m.widths.end(), std::greater_equal<>()) != m.widths.end())
    reader.refuse("blocks.widths", "ascending numbers");
  for (const auto& [key, list] : by_width(m)) {
    *list = reader.numbers(key);
    if (list->size() != m.widths.size()) reader.refuse(key, "as many numbers as blocks.widths");
  }
  reader.take(measured_everywhere(m));
  if (reader.has("disk")) reader.take(of_disk(m.disk.emplace()));
  if (reader.has("collectives")) reader.take(of_collectives(m.collectives.emplace()));
  if (reader.has("network")) {
    Machine::Network& network = m.network.emplace();
    network.shared = !reader.is("network.links", "shared", "per rank");
    Fields fields = of_network(network);
    if (!reader.has_key("network.rails")) fields.pop_back();
    reader.take(fields);
    if (network.rails != std::floor(network.rails)) reader.refuse("network.rails", "a whole number, at least 1");
  }
  if (reader.has("capacity")) reader.take(of_capacity(m.capacity.emplace()));
  if (reader.has("host")) reader.take({{kHostUpdate, &m.host_update_gb_per_s.emplace()}});
  reader.refuse_others();
  return m;
}

std::string machine_toml(const Machine& machine) {
  Machine m = machine;
  Fields fields = measured_everywhere(m);
  const auto add = [&](const Fields& more) { fields.insert(fields.end(), more.begin(), more.end()); };
  if (m.disk) add(of_disk(*m.disk));
  if (m.collectives) add(of_collectives(*m.collectives));
  if (m.network) add(of_network(*m.network));
  if (m.capacity) add(of_capacity(*m.capacity));
  if (m.host_update_gb_per_s) add({{kHostUpdate, &*m.host_update_gb_per_s}});
  std::map<std::string, std::string> sections;  // "" first
  for (const auto& [key, value] : fields) {
    const auto dot = key.find('.');
    const std::string section = dot == std::string::npos ? "" : key.substr(0, dot);
    sections[section] += fmt::format("{} = {:.6g}\n", dot == std::string::npos ? key : key.substr(dot + 1), *value);
  }
  std::string& blocks = sections["blocks"];
  blocks += fmt::format("widths = [{:.6g}]\n", fmt::join(m.widths, ", "));
  for (const auto& [key, list] : by_width(m))
    blocks += fmt::format("{} = [{:.6g}]\n", key.substr(key.find('.') + 1), fmt::join(*list, ", "));
  if (m.network && !m.network->shared) sections["network"] += "links = \"per rank\"\n";
  std::string text = "# Speeds of one rank while all ranks of the machine worked: strata calibrate.\n";
  if (m.gpu) text += "device = \"gpu\"\n";
  if (!m.measured) text += "source = \"data sheets\"\n";
  text += fmt::format("processor = {}\nranks = {}\nthreads = {}\n", json_string(m.processor), m.ranks, m.threads);
  if (m.spread.value_or(0) >= 0.0005) text += fmt::format("spread = {:.3f}\n", *m.spread);
  for (const auto& [section, lines] : sections) {
    if (!section.empty()) text.append("\n[").append(section).append("]\n");
    text += lines;
  }
  return text;
}

MachineProfile profile_of(const Machine& m, const Job& job, int ranks_per_node) {
  const StepPlan& plan = job.plan;
  const bool on_gpu = plan.device.kind != device::Kind::cpu;
  if (on_gpu != m.gpu)
    fail(Exit::usage, "the machine file has the speeds of a {}, but the recipe computes on a {}: {}",
         m.gpu ? "GPU" : "CPU", on_gpu ? "GPU" : "CPU",
         m.gpu ? "set device.kind = \"cuda\"" : "use a file for one, as in examples/machines");
  const bool uses_disk = plan.io_bytes.total() > plan.io_bytes.read[1] + plan.io_bytes.written[1];
  if (uses_disk && !m.disk)
    fail(Exit::usage,
         "the machine file has no [disk], but the recipe puts state on NVMe: measure the drive with strata calibrate "
         "--dir DIR");
  const bool exchanges = std::min(job.ranks, ranks_per_node) > 1 || (job.ranks > 1 && !m.network);
  if (exchanges && !m.collectives && !m.measured)
    fail(Exit::usage,
         "the machine file is computed from data sheets of a machine with one rank ({}), but the plan is for {}: use a "
         "file with [collectives], such as others in examples/machines, or --ranks 1",
         m.processor, job.ranks);
  if (exchanges && !m.collectives)
    fail(Exit::usage,
         "the machine file was measured by one rank and has no [collectives]: measure it with mpirun -n {} strata "
         "calibrate -o FILE",
         std::max(2, ranks_per_node));
  const auto dtype = static_cast<std::size_t>(plan.dtype);
  const auto moments = static_cast<std::size_t>(job.recipe.optimizer.moment_format());
  MachineProfile p;
  const auto width = static_cast<double>(job.model->hidden);
  p.flops_per_s = at_width(m.widths, m.products_gflop_per_s[dtype], width) * 1e9;
  p.attention_flops_per_s = m.attention_gflop_per_s[dtype] * 1e9;
  p.bytes_per_s = at_width(m.widths, m.elementwise_gb_per_s[dtype], width) * 1e9;
  p.loss_bytes_per_s = m.loss_gb_per_s[dtype] * 1e9;
  p.update_bytes_per_s = m.optimizer_gb_per_s[moments] * 1e9;
  p.sum_bytes_per_s = m.sum_gb_per_s * 1e9;
  p.norm_bytes_per_s = m.norm_gb_per_s * 1e9;
  p.host_bytes_per_s = m.host_copy_gb_per_s * 1e9;
  p.memory_bytes_per_s = m.triad_gb_per_s * 1e9;
  p.task_overhead_s = m.task_overhead_us * 1e-6;
  p.cores = m.threads;
  if (m.collectives) {
    p.all_gather_bytes_per_s = m.collectives->all_gather_gb_per_s * 1e9;
    p.all_to_all_bytes_per_s = exchange_gb_per_s(m) * 1e9;
  }
  if (m.disk) {
    // If the recipe stripes over fewer drives than were measured, their speed is scaled down.
    const auto drives = static_cast<double>(std::max<std::size_t>(1, job.recipe.memory.nvme.size()));
    const double part = std::min(1.0, drives / m.disk->drives) * 1e9;
    p.read_bytes_per_s = m.disk->read_gb_per_s * part;
    p.write_bytes_per_s = m.disk->write_gb_per_s * part;
    p.read_latency_s = m.disk->read_latency_us * 1e-6;
    p.write_latency_s = m.disk->write_latency_us * 1e-6;
    p.disk_both_ways = m.disk->both_ways;
    p.disk_speed_during_products = m.disk->speed_during_products;
    p.disk_core_share = m.disk->slows_products;
  }
  if (m.network && job.ranks > ranks_per_node) {
    const double links = m.network->rails / (m.network->shared ? ranks_per_node : 1);
    p.network_bytes_per_s = m.network->gb_per_s * links * 1e9;
    p.network_latency_s = m.network->latency_us * 1e-6;
  }
  const double part = static_cast<double>(m.ranks) / ranks_per_node;
  if (m.gpu) {
    p.cores = 0;  // lanes of a GPU are streams
    p.host_update_bytes_per_s = m.host_update_gb_per_s.value_or(m.optimizer_gb_per_s[moments]) * part * 1e9;
    p.read_bytes_per_s *= part;
    p.write_bytes_per_s *= part;
    if (part < 1) scale_speeds(p, part);
  } else {
    scale_speeds(p, part);
  }
  return p;
}

std::string scaling_text(const Machine& m, int ranks, int ranks_per_node, std::size_t drives) {
  std::string text;
  if (m.gpu && m.ranks < ranks_per_node)
    text = fmt::format("the machine has {} GPUs for {} ranks: each GPU is shared evenly", m.ranks, ranks_per_node);
  else if (!m.gpu && m.ranks != ranks_per_node)
    text = fmt::format(
        "speeds of {} on the machine, scaled to {}: cores, memory and drives are divided evenly; to measure "
        "them, run mpirun -n {} strata calibrate",
        counted(m.ranks, "rank"), counted(ranks_per_node, "rank"), ranks_per_node);
  else if (m.gpu && m.ranks > ranks_per_node)
    text = fmt::format(
        "the run uses {} of the machine's {} GPUs: each rank has {:.3g} times the share of cores and drives that the "
        "file gives one rank",
        ranks_per_node, m.ranks, static_cast<double>(m.ranks) / ranks_per_node);
  if (m.disk && drives > 0 && static_cast<double>(drives) < m.disk->drives)
    text += fmt::format("{}memory.nvme names {} of {:.0f} measured drives: the file's speed is scaled down to them",
                        text.empty() ? "" : "\n", drives, m.disk->drives);
  if (ranks > ranks_per_node && !m.network)
    text += fmt::format(
        "{}collectives between machines are assumed to be as fast as within one, because the machine file has no "
        "[network]: a network makes the step longer",
        text.empty() ? "" : "\n");
  return text;
}

}  // namespace strata::runtime
