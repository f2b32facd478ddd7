#include "cairn/memory/region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cairn/memory/cuda_driver.h"
#include "cairn/memory/device_region.h"
#include "cairn/memory/elsewhere_region.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

TEST(RegionTest, KindsHaveNames) {
  EXPECT_EQ(to_string(MemoryKind::kSystem), "system");
  EXPECT_EQ(to_string(MemoryKind::kPinned), "pinned");
  EXPECT_EQ(to_string(MemoryKind::kDevice), "device");
  EXPECT_EQ(to_string(MemoryKind::kFile), "file");
}

TEST(RegionTest, TheLastHolderReleasesOnce) {
  int released = 0;
  auto first = std::make_shared<const Region>(RegionFacts{.size = 1}, [&released] { ++released; });
  RegionPtr second = first;
  first.reset();
  EXPECT_EQ(released, 0);
  second.reset();
  EXPECT_EQ(released, 1);
}

TEST(RegionTest, NothingToReleaseIsFine) { std::make_shared<const Region>(RegionFacts{}, nullptr).reset(); }

TEST(ExternalRegionTest, KeepsItsDescription) {
  alignas(256) std::byte tensor[1024];
  const RegionPtr region =
      external_region({.base = tensor + 64, .size = 512, .kind = MemoryKind::kDevice, .device = 3}).value();
  EXPECT_EQ(region->kind(), MemoryKind::kDevice);
  EXPECT_EQ(region->base(), tensor + 64);
  EXPECT_EQ(region->size(), 512U);
  EXPECT_EQ(region->alignment(), 64U);
  EXPECT_EQ(region->device(), 3);
  EXPECT_TRUE(region->is_external());
  EXPECT_FALSE(region->is_host());
  EXPECT_TRUE(external_region({.base = tensor, .size = 1, .kind = MemoryKind::kPinned}).value()->is_host());
  EXPECT_EQ(external_region({.base = tensor + 1, .size = 1, .kind = MemoryKind::kSystem}).value()->alignment(), 1U);
}

TEST(ExternalRegionTest, WhatKeepsItAliveIsHeldByTheLastHolder) {
  auto tensor = std::make_shared<std::vector<std::byte>>(4096);
  const std::weak_ptr<std::vector<std::byte>> watch = tensor;
  RegionPtr region = external_region({.base = tensor->data(),
                                      .size = tensor->size(),
                                      .kind = MemoryKind::kSystem,
                                      .keep_alive = std::move(tensor)})
                         .value();
  RegionPtr other = region;
  region.reset();
  EXPECT_FALSE(watch.expired());
  other.reset();
  EXPECT_TRUE(watch.expired());
}

TEST(ExternalRegionTest, InvalidMemoryIsRefusedAndReleased) {
  std::byte tensor[8];
  auto keep = std::make_shared<int>(1);
  const ExternalMemory good = {.base = tensor, .size = 8, .kind = MemoryKind::kDevice, .device = 0, .keep_alive = keep};
  const auto refused = [](const ExternalMemory& memory) {
    const Result<RegionPtr> made = external_region(memory);
    EXPECT_FALSE(made);
    return made ? std::string() : made.error().to_string();
  };
  ExternalMemory wrong = good;
  wrong.base = nullptr;
  EXPECT_THAT(refused(wrong), HasSubstr("invalid_argument: external memory without an address"));
  wrong = good;
  wrong.size = 0;
  EXPECT_THAT(refused(wrong), HasSubstr("0 bytes"));
  wrong.size = UINT64_MAX - 8;
  EXPECT_THAT(refused(wrong), HasSubstr("beyond the address space"));
  wrong = good;
  wrong.kind = MemoryKind::kFile;
  EXPECT_THAT(refused(wrong), HasSubstr("external_file_region"));
  wrong = good;
  wrong.device = kNoDevice;
  EXPECT_THAT(refused(wrong), HasSubstr("without a device number"));
  wrong = good;
  wrong.kind = MemoryKind::kSystem;
  EXPECT_THAT(refused(wrong), HasSubstr("no GPU"));
  wrong.keep_alive.reset();
  EXPECT_EQ(keep.use_count(), 2);  // here and in `good`
}

TEST(ElsewhereRegionTest, HasAKindAndASizeAndNoBytes) {
  const RegionPtr region = *elsewhere_region(MemoryKind::kPinned, 1 << 20);
  EXPECT_TRUE(region->is_elsewhere());
  EXPECT_EQ(region->kind(), MemoryKind::kPinned);
  EXPECT_EQ(region->size(), 1U << 20);
  EXPECT_EQ(region->base(), nullptr);
  EXPECT_FALSE(region->is_host());
  EXPECT_EQ(elsewhere_region(MemoryKind::kFile, 0).error().code, ErrorCode::kInvalidArgument);
}

TEST(DeviceRegionTest, WithoutAGpuItIsUnavailable) {
  EXPECT_EQ(device_region({.size = 0}).error().code, ErrorCode::kInvalidArgument);
  if (CudaDriver::get()) {
    GTEST_SKIP() << "there is a GPU: gpu_memory_test covers it";
  }
  const Result<RegionPtr> made = device_region({.size = 4096});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace cairn
