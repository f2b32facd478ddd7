#include "cairn/manager/returns_file.h"

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

constexpr std::size_t kLongest = 1 << 20;  // a file of ours is shorter
constexpr std::string_view kWithout = "; return times are learned anew";

}  // namespace

Status ReturnsFile::load() {
  std::ifstream file(path_, std::ios::binary);
  if (!file) {
    std::error_code error;
    const bool is_there = std::filesystem::exists(path_, error);
    return is_there ? fail(ErrorCode::kIo, str_cat("cannot read ", path_, kWithout)) : Status();
  }
  std::vector<char> bytes(kLongest);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  if (const Status decoded = model_->decode(std::as_bytes(std::span(bytes))); !decoded) {
    return fail(decoded.error().code, str_cat(path_, ": ", decoded.error().message, kWithout));
  }
  return {};
}

Status ReturnsFile::save() {
  const std::vector<std::byte> bytes = model_->encode();
  const std::string unfinished = path_ + ".new";
  std::error_code error;
  {
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    file.flush();
    if (!file) {
      std::filesystem::remove(unfinished, error);
      return fail(ErrorCode::kIo, str_cat("cannot write ", unfinished, kWithout, " after the next start"));
    }
  }
  std::filesystem::rename(unfinished, path_, error);
  if (error) {
    const std::string why = error.message();
    std::filesystem::remove(unfinished, error);
    return fail(ErrorCode::kIo, str_cat("cannot write ", path_, ": ", why, kWithout, " after the next start"));
  }
  return {};
}

Status ReturnsFile::save_if_due(TimePoint now) {
  if (now < save_at_) {
    return {};
  }
  save_at_ = now + kSaveEvery;
  return save();
}

}  // namespace cairn
