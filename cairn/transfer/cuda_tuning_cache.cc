#include "cairn/transfer/cuda_tuning_cache.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

constexpr std::string_view kFirstLine = "cairn cuda tuning 1";
constexpr std::size_t kLongest = 4096;  // a file of ours is shorter

// FNV-1a: finds damage, and is not meant to withstand more.
std::string checksum(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

std::string text_of(const CudaIdentity& gpu, const CudaTuning& tuning) {
  return str_cat(kFirstLine, "\ngpu=", gpu.uuid, "\ndriver=", gpu.driver, "\ntuning=", tuning.to_string(), "\n");
}

}  // namespace

std::string CudaTuningCache::folder_of(const std::vector<std::pair<std::string, std::string>>& environment) {
  const auto value_of = [&environment](std::string_view name) -> std::string {
    for (const auto& [variable, value] : environment) {
      if (variable == name && value.starts_with('/')) {  // others are to be ignored
        return value;
      }
    }
    return {};
  };
  if (const std::string cache = value_of("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/cairn";
  }
  const std::string home = value_of("HOME");
  return home.empty() ? home : home + "/.cache/cairn";
}

std::string CudaTuningCache::path_of(const CudaIdentity& gpu) const {
  return folder_.empty() || gpu.uuid.empty() ? std::string() : str_cat(folder_, "/cuda-", gpu.uuid);
}

std::optional<CudaTuning> CudaTuningCache::find(const CudaIdentity& gpu) const {
  const std::string path = path_of(gpu);
  std::ifstream file(path, std::ios::binary);
  if (path.empty() || !file) {
    return std::nullopt;
  }
  std::string text(kLongest, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  constexpr std::string_view kName = "\ntuning=";
  const std::size_t begin = text.find(kName);
  const std::size_t end = begin == std::string::npos ? begin : text.find('\n', begin + 1);
  if (end == std::string::npos) {
    return std::nullopt;
  }
  const Result<CudaTuning> tuning =
      CudaTuning::parse(std::string_view(text).substr(begin + kName.size(), end - begin - kName.size()));
  if (!tuning) {
    return std::nullopt;
  }
  const std::string expected = text_of(gpu, *tuning);
  return text == str_cat(expected, "checksum=", checksum(expected), "\n") ? std::optional(*tuning) : std::nullopt;
}

Status CudaTuningCache::put(const CudaIdentity& gpu, const CudaTuning& tuning) const {
  const std::string path = path_of(gpu);
  if (path.empty()) {
    return {};
  }
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  const std::string unfinished = str_cat(path, ".", getpid());
  const std::string text = text_of(gpu, tuning);
  {
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    file << text << "checksum=" << checksum(text) << "\n";
    file.flush();
    if (!file) {
      std::filesystem::remove(unfinished, error);
      return fail(ErrorCode::kIo, str_cat("writing the calibration of the GPU to ", unfinished,
                                          " failed; it is measured again at the next start"));
    }
  }
  std::filesystem::rename(unfinished, path, error);
  if (error) {
    const std::string why = error.message();
    std::filesystem::remove(unfinished, error);
    return fail(ErrorCode::kIo, str_cat("writing the calibration of the GPU to ", path, ": ", why,
                                        "; it is measured again at the next start"));
  }
  return {};
}

CudaTuning cached_tuning(const CudaIdentity& gpu, const CudaTuningCache& cache,
                         const std::function<Result<CudaTuning>()>& calibrate) {
  const std::optional<CudaTuning> found = cache.find(gpu);
  return found ? *found : fresh_tuning(gpu, cache, calibrate);
}

CudaTuning fresh_tuning(const CudaIdentity& gpu, const CudaTuningCache& cache,
                        const std::function<Result<CudaTuning>()>& calibrate) {
  const Result<CudaTuning> measured = calibrate();
  if (!measured) {
    return {};
  }
  (void)cache.put(gpu, *measured);  // otherwise it is measured again the next time
  return *measured;
}

}  // namespace cairn
