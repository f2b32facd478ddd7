#include "cairn/tier/disk_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace cairn {
namespace {

using ::testing::HasSubstr;

constexpr KvShape kShape{.layers = 3, .kv = 2, .page_size = 4, .heads = 2, .head_size = 40, .element_bits = 16};

class DiskLayoutTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(path_); }
  void TearDown() override { std::filesystem::remove(path_); }
  [[nodiscard]] DiskFile make_file() const {
    return *DiskFile::create(
        path_,
        {.space = {.tenant = "t", .model = "m", .layout = "contiguous-nhd", .element_type = "bf16", .block_size = 4},
         .block_bytes = kShape.block_bytes(),
         .row_bytes = kShape.row_bytes(),
         .blocks = 5});
  }
  const std::string path_ = ::testing::TempDir() + "disk_layout_test." + std::to_string(getpid()) + ".cairn";
};

TEST_F(DiskLayoutTest, BlocksLieWhereTheFileSaysAllRowsInOrder) {
  const DiskFile file = make_file();
  const Result<RegionPtr> region = disk_region(file, false);
  ASSERT_TRUE(region) << region.error().to_string();
  EXPECT_EQ((*region)->size(), file.file_bytes());
  EXPECT_FALSE((*region)->is_direct());
  const Result<BlockLayoutPtr> layout = disk_layout(file, kShape, *region);
  ASSERT_TRUE(layout) << layout.error().to_string();
  EXPECT_EQ((*layout)->blocks(), 5U);
  for (std::uint32_t block = 0; block < 5; ++block) {
    std::uint64_t at = file.data_offset() + block * file.block_step();
    for (std::uint32_t layer = 0; layer < kShape.layers; ++layer) {
      for (std::uint32_t k_or_v = 0; k_or_v < kShape.kv; ++k_or_v) {
        for (std::uint32_t token = 0; token < kShape.page_size; ++token) {
          for (std::uint32_t head = 0; head < kShape.heads; ++head) {
            EXPECT_EQ((*layout)->address(block, layer, k_or_v, token, head).offset, at);
            at += kShape.row_bytes();
          }
        }
      }
    }
  }
}

TEST_F(DiskLayoutTest, RefusesAShapeOfOtherBytesAndAFileThatIsGone) {
  const DiskFile file = make_file();
  const RegionPtr region = *disk_region(file, true);
  KvShape other = kShape;
  other.heads = 1;
  const Result<BlockLayoutPtr> layout = disk_layout(file, other, region);
  ASSERT_FALSE(layout);
  EXPECT_EQ(layout.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(layout.error().message, HasSubstr("1920"));
  std::filesystem::remove(path_);
  EXPECT_FALSE(disk_region(file, true));
}

}  // namespace
}  // namespace cairn
