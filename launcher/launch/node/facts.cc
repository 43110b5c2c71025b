#include "launcher/launch/node/facts.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <simdjson.h>
#include <sys/resource.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "base/abort.h"
#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/host/host.h"
#include "base/json/json_fault.h"
#include "base/json/json_writer.h"
#include "device/cpu/isa.h"
#include "device/gpu.h"
#include "device/lane.h"
#include "device/memory.h"
#include "device/ops/products/product.h"
#include "launcher/measure/bench/bench_lane.h"
#include "launcher/rank/cores.h"
#include "offload/swap.h"
#include "runtime/data/files/tokens.h"
#include "runtime/job/capacity.h"

namespace strata::launcher {

namespace {

namespace fs = std::filesystem;

DriveFact drive_fact(const fs::path& folder) {
  DriveFact out{folder.string(), "", "", 0};
  std::error_code error;
  if (const auto space = fs::space(folder, error); !error) out.free = space.available;
  try {
    const AbortToken abort;
    offload::IoOptions options;
    options.folders = {folder};
    const offload::Swap swap(options, 4096, 0, abort);
    out.how = to_string(swap.drives()[0].mode);
  } catch (const Error& wrong) {
    out.problem = wrong.what();
  }
  return out;
}

std::vector<Interface> interfaces() {
  std::vector<Interface> out;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return out;
  for (const ifaddrs* one = list; one; one = one->ifa_next) {
    if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET || !(one->ifa_flags & IFF_UP)) continue;
    char text[NI_MAXHOST];
    if ((one->ifa_flags & IFF_LOOPBACK) == 0 &&
        ::getnameinfo(one->ifa_addr, sizeof(sockaddr_in), text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      out.push_back({one->ifa_name, text});
  }
  ::freeifaddrs(list);
  return out;
}

// The kernel's boot ID and this process's network namespace. Containers of one machine are different nodes if their
// networks differ.
std::string machine_here() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::error_code error;
  const fs::path network = fs::read_symlink("/proc/self/ns/net", error);
  return boot.empty() || error ? "" : fmt::format("{} {}", boot, network.string());
}

std::string text_at(simdjson::dom::element root, std::string_view key) {
  return std::string(std::string_view(root[key]));
}

double products_on(device::Device device, std::int64_t edge, int threads, double seconds) {
  device::ProductShape shape{edge, edge, edge};
  shape.lda = shape.ldb = shape.ldc = edge;
  shape.in = shape.out = device::DType::bf16;
  const device::Product product(device, shape);
  const std::size_t elements = edge * edge, scratch = product.workspace_bytes(threads);
  BenchLane timed(threads, 4 * elements * 2 + scratch + 8 * 4096, device);
  const device::View a = timed.take(elements, shape.in), b = timed.take(elements, shape.in),
                     c = timed.take(elements, shape.out), workspace = timed.take(scratch / 4 + 1, device::DType::fp32);
  const auto start = std::chrono::steady_clock::now();
  std::chrono::duration<double> took{};
  double flop = 0;
  do {
    product.run(timed.lane(), a, b, {}, c, workspace);
    timed.lane().synchronize();
    flop += 2.0 * edge * edge * edge;
    took = std::chrono::steady_clock::now() - start;
  } while (took.count() < seconds);
  return flop / took.count() / 1e9;
}

}  // namespace

std::string program_hash() {
  const MappedFile file("/proc/self/exe");  // the running program, even if its file was replaced
  const XXH128_hash_t hash = XXH3_128bits(file.bytes().data(), file.bytes().size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string another_build(const std::string& host) {
  return fmt::format(
      "{} has a different build of strata than the node that launches, at {}: install the same file there", host,
      own_program().string());
}

NodeFacts facts_here(std::span<const fs::path> folders) {
  NodeFacts out;
  out.name = host_name();
  out.machine = machine_here();
  out.program = program_hash();
  out.processor = device::cpu::describe();
  out.libraries = device::cpu::describe_libraries();
  out.cores = cores_here();
  out.memory = runtime::available_memory();
  rlimit limit{};
  out.memlock = ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 ? limit.rlim_cur : 0;
  for (const fs::path& folder : folders) out.drives.push_back(drive_fact(folder));
  const device::Gpus gpus = device::find_gpus();
  out.driver = gpus.driver;
  for (const device::Gpu& gpu : gpus.gpus)
    if (gpu.problem.empty()) out.gpus.push_back(gpu.name);
  out.interfaces = interfaces();
  return out;
}

std::string to_json(const NodeFacts& facts) {
  JsonArray drives, interfaces;
  for (const DriveFact& one : facts.drives)
    drives.add(
        JsonObject().add("folder", one.folder).add("problem", one.problem).add("how", one.how).add("free", one.free));
  for (const Interface& one : facts.interfaces)
    interfaces.add(JsonObject().add("name", one.name).add("address", one.address));
  return JsonObject()
      .add("name", facts.name)
      .add("machine", facts.machine)
      .add("program", facts.program)
      .add("processor", facts.processor)
      .add("libraries", facts.libraries)
      .add("cores", facts.cores)
      .add("memory", facts.memory)
      .add("memlock", facts.memlock)
      .add("drives", drives)
      .add("gpus", JsonArray().add_all(facts.gpus))
      .add("driver", facts.driver)
      .add("interfaces", interfaces)
      .text();
}

NodeFacts parse_facts(std::string_view json) {
  try {
    simdjson::dom::parser parser;
    const simdjson::dom::element root = parser.parse(simdjson::padded_string(json));
    NodeFacts out;
    out.name = text_at(root, "name");
    out.machine = text_at(root, "machine");
    out.program = text_at(root, "program");
    out.processor = text_at(root, "processor");
    out.libraries = text_at(root, "libraries");
    out.cores = static_cast<int>(std::int64_t(root["cores"]));
    out.memory = std::uint64_t(root["memory"]);
    out.memlock = std::uint64_t(root["memlock"]);
    for (const simdjson::dom::element one : root["drives"])
      out.drives.push_back(
          {text_at(one, "folder"), text_at(one, "problem"), text_at(one, "how"), std::uint64_t(one["free"])});
    for (const simdjson::dom::element one : root["gpus"]) out.gpus.emplace_back(std::string_view(one));
    out.driver = text_at(root, "driver");
    for (const simdjson::dom::element one : root["interfaces"])
      out.interfaces.push_back({text_at(one, "name"), text_at(one, "address")});
    return out;
  } catch (const simdjson::simdjson_error&) {
    const auto fault = find_json_fault(json);
    fail(Exit::failed, "not a node's description of itself ({}): {}",
         fault ? fault->found : "a value is missing or has the wrong type", json.substr(0, 200));
  }
}

double products_per_second(double seconds, bool on_gpus) {
  std::vector<device::Device> gpus;
  if (on_gpus)
    for (const device::Gpu& gpu : device::find_gpus().gpus)
      if (gpu.problem.empty()) gpus.push_back(gpu.device);
  if (gpus.empty()) return products_on({}, 1024, cores_here(), seconds);
  double slowest = std::numeric_limits<double>::max();
  for (const device::Device gpu : gpus)
    slowest = std::min(slowest, products_on(gpu, 8192, 1, seconds / static_cast<double>(gpus.size())));
  return slowest;
}

std::string to_json(std::span<const RecipeFile> files) {
  JsonArray out;
  for (const RecipeFile& file : files) out.add(JsonArray().add(file.key).add(file.pattern));
  return out.text();
}

std::vector<RecipeFile> parse_recipe_files(std::string_view json) {
  std::vector<RecipeFile> out;
  try {
    simdjson::dom::parser parser;
    for (const simdjson::dom::element one : parser.parse(simdjson::padded_string(json)))
      out.push_back({std::string(std::string_view(one.at(0))), std::string(std::string_view(one.at(1)))});
  } catch (const simdjson::simdjson_error&) {
    return {};
  }
  return out;
}

std::vector<std::string> unseen_here(std::span<const RecipeFile> files) {
  std::vector<std::string> out;
  for (const RecipeFile& file : files) try {
      // A model is a folder, which is not expanded. Token files are not folders.
      std::error_code ignored;
      if (!file.key.starts_with("data.") && std::filesystem::is_directory(file.pattern, ignored)) continue;
      const std::string patterns[] = {file.pattern};
      (void)runtime::expand_patterns(patterns, file.key.c_str());
    } catch (const Error& error) {
      out.emplace_back(error.what());
    }
  return out;
}

}  // namespace strata::launcher
