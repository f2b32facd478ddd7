#include "cairn/manager/returns_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace cairn {
namespace {

using ::testing::HasSubstr;

class ReturnsFileTest : public ::testing::Test {
 protected:
  ReturnsFileTest() { std::filesystem::remove(path()); }
  ~ReturnsFileTest() override { std::filesystem::remove(path()); }

  [[nodiscard]] static std::string disk() { return ::testing::TempDir() + "returns_file_test.cairn"; }
  [[nodiscard]] static std::string path() { return disk() + ".returns"; }
  [[nodiscard]] static std::shared_ptr<ReturnModel> model(int requests) {
    std::shared_ptr<ReturnModel> made = *ReturnModel::create();
    const ReturnModel::Observation seen{
        .of = ReturnModel::class_of({.uses = 2}), .first = 0, .last = 12, .returned = true};
    for (int i = 0; i < requests; ++i) {
      made->learn({&seen, 1});
    }
    return made;
  }
};

TEST_F(ReturnsFileTest, WhatWasLearnedIsThereAfterARestart) {
  const auto before = model(300);
  ASSERT_TRUE(ReturnsFile(disk(), before, TimePoint{}).save());
  const auto after = model(0);
  ASSERT_TRUE(ReturnsFile(disk(), after, TimePoint{}).load());
  EXPECT_EQ(after->encode(), before->encode());
}

TEST_F(ReturnsFileTest, NoFileIsNoError) {
  const auto fresh = model(0);
  EXPECT_TRUE(ReturnsFile(disk(), fresh, TimePoint{}).load());
}

TEST_F(ReturnsFileTest, ADamagedFileIsNamedAndChangesNothing) {
  ASSERT_TRUE(ReturnsFile(disk(), model(300), TimePoint{}).save());
  {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100);
    file.put('x');
  }
  const auto fresh = model(0);
  const std::vector<std::byte> before = fresh->encode();
  const Status loaded = ReturnsFile(disk(), fresh, TimePoint{}).load();
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, HasSubstr(path()));
  EXPECT_THAT(loaded.error().message, HasSubstr("learned anew"));
  EXPECT_EQ(fresh->encode(), before);
}

TEST_F(ReturnsFileTest, SavesNowAndThen) {
  using namespace std::chrono_literals;
  ReturnsFile file(disk(), model(10), TimePoint{1min});
  ASSERT_TRUE(file.save_if_due(TimePoint{5min}));
  EXPECT_FALSE(std::filesystem::exists(path()));
  ASSERT_TRUE(file.save_if_due(TimePoint{12min}));
  EXPECT_TRUE(std::filesystem::exists(path()));
}

TEST_F(ReturnsFileTest, SaysWhyItCannotBeWritten) {
  const Status saved = ReturnsFile("/no/such/folder/disk", model(10), TimePoint{}).save();
  ASSERT_FALSE(saved);
  EXPECT_THAT(saved.error().message, HasSubstr("/no/such/folder"));
}

}  // namespace
}  // namespace cairn
