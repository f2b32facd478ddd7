// Runs a fuzz target without a fuzzer: on every file of the given folder, then on inputs generated from a fixed seed,
// so that every test run compiles and runs the targets. scripts/fuzz.sh searches for new inputs.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr int kMadeInputs = 2000;
constexpr std::size_t kLongestInput = 512;

std::vector<std::filesystem::path> files_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::vector<std::uint8_t>> inputs{{}};
  for (const auto& path : argc > 1 ? files_of(argv[1]) : std::vector<std::filesystem::path>{}) {
    std::ifstream in(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    std::printf("%s\n", path.c_str());
  }
  for (const auto& input : inputs) {
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }

  // A known input with some bytes changed or cut off gets further into a decoder than random bytes.
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): the same inputs each time
  for (int made = 0; made < kMadeInputs; ++made) {
    std::vector<std::uint8_t> input = inputs[random() % inputs.size()];
    if (input.empty()) {
      input.resize(random() % kLongestInput);
      std::generate(input.begin(), input.end(), [&] { return static_cast<std::uint8_t>(random()); });
    }
    for (std::uint32_t changes = random() % 4; changes > 0 && !input.empty(); --changes) {
      input[random() % input.size()] = static_cast<std::uint8_t>(random());
    }
    if (random() % 4 == 0 && !input.empty()) {
      input.resize(random() % input.size());
    }
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  return 0;
}
