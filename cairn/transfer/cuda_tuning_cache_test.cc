#include "cairn/transfer/cuda_tuning_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cairn/memory/memory_testing.h"

namespace cairn::testing {
namespace {

const CudaIdentity kGpu = {.uuid = "00112233445566778899aabbccddeeff", .driver = "13000 580.95.05"};

CudaTuning other_tuning() {
  CudaTuning tuning;
  tuning.stage_from_bytes = 12345;
  return tuning;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

TEST(CudaTuningCacheTest, TheFolderIsThatOfTheEnvironment) {
  EXPECT_EQ(CudaTuningCache::folder_of({{"HOME", "/home/a"}}), "/home/a/.cache/cairn");
  EXPECT_EQ(CudaTuningCache::folder_of({{"HOME", "/home/a"}, {"XDG_CACHE_HOME", "/cache"}}), "/cache/cairn");
  EXPECT_EQ(CudaTuningCache::folder_of({{"HOME", "/home/a"}, {"XDG_CACHE_HOME", "relative"}}), "/home/a/.cache/cairn");
  EXPECT_EQ(CudaTuningCache::folder_of({}), "");
}

TEST(CudaTuningCacheTest, KeepsATuningForItsGpuAndDriver) {
  const TestFolder folder;
  const CudaTuningCache cache(folder.in("not/there/yet"));
  EXPECT_FALSE(cache.find(kGpu).has_value());
  ASSERT_TRUE(cache.put(kGpu, other_tuning()).has_value());
  EXPECT_EQ(cache.find(kGpu), other_tuning());
  CudaIdentity other = kGpu;
  other.driver = "13010 585.00.00";
  EXPECT_FALSE(cache.find(other).has_value()) << "another driver";
  other = kGpu;
  other.uuid[0] = 'f';
  EXPECT_FALSE(cache.find(other).has_value()) << "another GPU";
  std::filesystem::copy_file(cache.path_of(kGpu), cache.path_of(other));
  EXPECT_FALSE(cache.find(other).has_value()) << "a file of another GPU";
  ASSERT_TRUE(cache.put(kGpu, CudaTuning()).has_value());
  EXPECT_EQ(cache.find(kGpu), CudaTuning()) << "replaced";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.in("not/there/yet")), {}), 2) << "nothing is left";
}

TEST(CudaTuningCacheTest, ADamagedFileIsAsNone) {
  const TestFolder folder;
  const CudaTuningCache cache(folder.in("cache"));
  ASSERT_TRUE(cache.put(kGpu, other_tuning()).has_value());
  const std::string whole = contents(cache.path_of(kGpu));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write(cache.path_of(kGpu), whole.substr(0, length));
    EXPECT_FALSE(cache.find(kGpu).has_value()) << length;
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write(cache.path_of(kGpu), damaged);
    EXPECT_FALSE(cache.find(kGpu).has_value()) << at;
  }
  write(cache.path_of(kGpu), std::string(100'000, 'x'));
  EXPECT_FALSE(cache.find(kGpu).has_value());
  write(cache.path_of(kGpu), whole);
  EXPECT_TRUE(cache.find(kGpu).has_value());
}

TEST(CudaTuningCacheTest, AFolderThatCannotBeWrittenIsAnError) {
  const TestFolder folder;
  write(folder.in("file"), "");
  const CudaTuningCache cache(folder.in("file/below"));
  EXPECT_FALSE(cache.put(kGpu, other_tuning()).has_value());
  const CudaTuningCache none("");
  EXPECT_TRUE(none.put(kGpu, other_tuning()).has_value());
  EXPECT_FALSE(none.find(kGpu).has_value());
}

TEST(CudaTuningCacheTest, AMachineMeasuresOnce) {
  const TestFolder folder;
  const CudaTuningCache cache(folder.in("cache"));
  int measured = 0;
  const auto calibrate = [&measured]() -> Result<CudaTuning> {
    ++measured;
    return other_tuning();
  };
  EXPECT_EQ(cached_tuning(kGpu, cache, calibrate), other_tuning());
  EXPECT_EQ(cached_tuning(kGpu, cache, calibrate), other_tuning());
  EXPECT_EQ(measured, 1);
  EXPECT_EQ(fresh_tuning(kGpu, cache, calibrate), other_tuning());
  EXPECT_EQ(measured, 2);
  write(cache.path_of(kGpu), "nonsense");
  EXPECT_EQ(cached_tuning(kGpu, cache, calibrate), other_tuning());
  EXPECT_EQ(measured, 3);
}

TEST(CudaTuningCacheTest, WhatCannotBeMeasuredIsNotKept) {
  const TestFolder folder;
  const CudaTuningCache cache(folder.in("cache"));
  const auto fails = []() -> Result<CudaTuning> { return fail(ErrorCode::kExhausted, "no memory on the GPU"); };
  EXPECT_EQ(cached_tuning(kGpu, cache, fails), CudaTuning());
  EXPECT_FALSE(cache.find(kGpu).has_value());
}

}  // namespace
}  // namespace cairn::testing
