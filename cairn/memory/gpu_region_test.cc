// Regions on a real GPU. Skipped, with the reason, on machines without one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/memory/cuda_driver.h"
#include "cairn/memory/device_region.h"
#include "cairn/memory/host_limits.h"
#include "cairn/memory/pinned_region.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

class GpuRegionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<const CudaDriver*> found = CudaDriver::get();
    if (!found) {
      GTEST_SKIP() << found.error().message;
    }
    driver_ = *found;
  }

  [[nodiscard]] std::size_t free_bytes() const {
    const Result<GpuContext> context = GpuContext::enter(0);
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(driver_->mem_get_info(&free, &total), cuda::kSuccess);
    return free;
  }

  // Exactly one copy: a copy across two registrations would be refused.
  void copy(cuda::Pointer to, cuda::Pointer from, std::uint64_t bytes) const {
    const Result<GpuContext> context = GpuContext::enter(0);
    ASSERT_TRUE(context);
    cuda::Stream stream = nullptr;
    ASSERT_EQ(driver_->stream_create(&stream, cuda::kStreamNonBlocking), cuda::kSuccess);
    const Status copied = driver_->check(driver_->memcpy_async(to, from, bytes, stream), "copying");
    EXPECT_TRUE(copied) << copied.error().message;
    EXPECT_EQ(driver_->stream_synchronize(stream), cuda::kSuccess);
    EXPECT_EQ(driver_->stream_destroy(stream), cuda::kSuccess);
  }

  static cuda::Pointer address(const RegionPtr& region) { return reinterpret_cast<cuda::Pointer>(region->base()); }

  const CudaDriver* driver_ = nullptr;
};

TEST_F(GpuRegionTest, DeviceMemoryIsAllocatedAndFreed) {
  const std::size_t before = free_bytes();
  Result<RegionPtr> made = device_region({.size = 512 * kMiB, .device = 0});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ((*made)->kind(), MemoryKind::kDevice);
  EXPECT_EQ((*made)->device(), 0);
  EXPECT_EQ((*made)->size(), 512 * kMiB);
  EXPECT_GE((*made)->alignment(), 256U);
  EXPECT_FALSE((*made)->is_host());
  EXPECT_LE(free_bytes(), before - 512 * kMiB);
  made->reset();
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(GpuRegionTest, MoreThanTheGpuHasIsAnErrorWithNumbers) {
  const Result<RegionPtr> made = device_region({.size = 1024 * kGiB, .device = 0});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(made.error().message,
              AllOf(HasSubstr("1099511627776 bytes (1.0 TiB) on GPU 0"), HasSubstr(" free: ask for less")));
}

TEST_F(GpuRegionTest, AGpuThatIsNotThere) {
  const int none = driver_->devices();
  EXPECT_EQ(device_region({.size = 1, .device = none}).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(device_region({.size = 1, .device = -1}).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(pinned_region({.size = 1, .device = none}).error().code, ErrorCode::kNotFound);
}

TEST_F(GpuRegionTest, PinnedMemoryGoesThroughTheGpuAndBackInOneCopyEach) {
  constexpr std::uint64_t kBytes = 256 * kMiB + 4096;
  for (const HugePages pages : {HugePages::kTransparent, HugePages::kNone}) {
    const Result<RegionPtr> host = pinned_region({.size = kBytes, .required = true, .huge_pages = pages});
    const Result<RegionPtr> back = pinned_region({.size = kBytes, .required = true, .huge_pages = pages});
    const Result<RegionPtr> gpu = device_region({.size = kBytes});
    ASSERT_TRUE(host) << host.error().message;
    ASSERT_TRUE(back && gpu);
    EXPECT_EQ((*host)->kind(), MemoryKind::kPinned);
    EXPECT_EQ((*host)->device(), 0);
    EXPECT_THAT((*host)->notes(), IsEmpty());
    for (std::uint64_t i = 0; i < kBytes; i += 8) {
      const std::uint64_t word = i * 0x9E3779B97F4A7C15U;
      std::memcpy((*host)->base() + i, &word, 8);
    }
    copy(address(*gpu), address(*host), kBytes);
    copy(address(*back), address(*gpu), kBytes);
    EXPECT_EQ(std::memcmp((*host)->base(), (*back)->base(), kBytes), 0);
  }
}

TEST_F(GpuRegionTest, ReleaseUnregisters) {
  Result<RegionPtr> made = pinned_region({.size = 16 * kMiB, .required = true});
  ASSERT_TRUE(made) << made.error().message;
  std::byte* const base = (*made)->base();
  const Result<GpuContext> context = GpuContext::enter(0);
  ASSERT_TRUE(context);
  EXPECT_EQ(driver_->mem_host_register(base, 4096, cuda::kHostRegisterPortable), cuda::kAlreadyRegistered);
  made->reset();
  EXPECT_NE(driver_->mem_host_unregister(base), cuda::kSuccess);
}

TEST_F(GpuRegionTest, TheGpuSaysWhereItIs) {
  const Result<PageRegistrar> registrar = gpu_page_registrar(0);
  ASSERT_TRUE(registrar) << registrar.error().message;
  EXPECT_THAT(registrar->pci_id, HasSubstr(":"));
}

// Prints how long it takes: a terabyte must not take minutes.
TEST_F(GpuRegionTest, LargeRegionsReportTheirProgress) {
  const std::uint64_t size = std::min(32 * kGiB, HostLimits("").memory().bytes / 2) / kGiB * kGiB;
  ASSERT_GT(size, 0U);
  const auto seconds_since = [](std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (const HugePages pages : {HugePages::kTransparent, HugePages::kNone}) {
    const auto start = std::chrono::steady_clock::now();
    double touched = 0;
    std::vector<std::uint64_t> seen;
    Result<RegionPtr> made = pinned_region(
        {.size = size, .required = true, .huge_pages = pages, .progress = [&](std::uint64_t done, std::uint64_t total) {
           seen.push_back(done);
           touched = done == total / 2 ? seconds_since(start) : touched;
         }});
    const double seconds = seconds_since(start);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
    EXPECT_EQ(seen.back(), 2 * size);
    const auto release = std::chrono::steady_clock::now();
    made->reset();
    std::cout << str_cat(pages == HugePages::kNone ? "small" : "huge", " pages, ", size / kGiB, " GiB: touched in ",
                         touched, " s, pinned in ", seconds, " s (", static_cast<double>(size) / seconds / 1e9,
                         " GB/s), released in ", seconds_since(release), " s\n");
  }
}

}  // namespace
}  // namespace cairn
