#include "cairn/memory/numa_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>

#include "cairn/memory/memory_testing.h"
#include "cairn/memory/numa_pages.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(NodeListTest, RangesAndSingles) {
  EXPECT_THAT(parse_node_list("0\n").value(), ElementsAre(0));
  EXPECT_THAT(parse_node_list("0-2,5\n").value(), ElementsAre(0, 1, 2, 5));
  for (const char* const wrong : {"", "\n", "x", "3-1", "-1", "0-", "0,,1", "0-99999999"}) {
    EXPECT_FALSE(parse_node_list(wrong)) << wrong;
  }
}

TEST(NumaTopologyTest, NodesWithMemoryCount) {
  const FakeMachine machine;
  machine.write("sys/devices/system/node/online", "0-3\n");
  machine.set_nodes("0,2");
  const NumaTopology topology = NumaTopology::read(machine.root());
  EXPECT_THAT(topology.nodes(), ElementsAre(0, 2));
  EXPECT_TRUE(topology.has_several());
  EXPECT_TRUE(topology.has_node(2));
  EXPECT_FALSE(topology.has_node(1));
}

TEST(NumaTopologyTest, OldKernelsListThoseOnline) {
  const TestFolder files;
  files.write("sys/devices/system/node/online", "0-1\n");
  EXPECT_THAT(NumaTopology::read(files.path()).nodes(), ElementsAre(0, 1));
}

TEST(NumaTopologyTest, OneNodeWhereNothingIsSaid) {
  const TestFolder nothing;
  const NumaTopology topology = NumaTopology::read(nothing.path());
  EXPECT_THAT(topology.nodes(), ElementsAre(0));
  EXPECT_FALSE(topology.has_several());
}

TEST(NumaTopologyTest, DevicesAreNextToANode) {
  const FakeMachine machine;
  machine.set_nodes("0-1");
  machine.set_pci_node("0000:1b:00.0", 1);
  machine.set_pci_node("0000:1c:00.0", -1);
  machine.set_pci_node("0000:1d:00.0", 7);
  const NumaTopology topology = NumaTopology::read(machine.root());
  EXPECT_EQ(topology.node_of_pci_device("0000:1B:00.0"), 1);
  EXPECT_EQ(topology.node_of_pci_device("0000:1c:00.0"), std::nullopt);
  EXPECT_EQ(topology.node_of_pci_device("0000:1d:00.0"), std::nullopt);  // there is no such node
  EXPECT_EQ(topology.node_of_pci_device("0000:ff:00.0"), std::nullopt);
}

TEST(NumaPagesTest, OneNodeOrWords) {
  EXPECT_EQ(summarize_nodes(std::array{1, 1, 1}).node, 1);
  const FoundNode mixed = summarize_nodes(std::array{0, 1, 0, -2});
  EXPECT_EQ(mixed.node, kNoNumaNode);
  EXPECT_EQ(mixed.words, "1 pages not present, 2 pages on node 0, 1 page on node 1, of 4 looked at");
  EXPECT_EQ(summarize_nodes(std::array{-2, -2}).node, kNoNumaNode);
}

TEST(NumaPagesTest, PagesAreOnTheRequestedNode) {
  constexpr std::uint64_t kBytes = 8 * kMiB;
  auto* const pages =
      static_cast<std::byte*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  const int node = NumaTopology::read("").nodes().back();
  const Status placed = place_on_node(pages, kBytes, node, NumaWish::kRequire);
  if (!placed) {
    munmap(pages, kBytes);
    GTEST_SKIP() << placed.error().message;
  }
  // No page is present yet.
  EXPECT_THAT(find_node(pages, kBytes).value().words, HasSubstr("not present"));
  for (std::uint64_t offset = 0; offset < kBytes; offset += 4096) {
    pages[offset] = std::byte{1};
  }
  EXPECT_EQ(find_node(pages, kBytes).value().node, node);
  EXPECT_EQ(find_node(pages + kBytes - 4096, 1).value().node, node);
  munmap(pages, kBytes);
}

TEST(NumaPagesTest, AnUnknownNodeIsRefused) {
  std::byte* const nowhere = nullptr;
  EXPECT_EQ(place_on_node(nowhere, 4096, kMostNumaNodes, NumaWish::kPrefer).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(place_on_node(nowhere, 4096, -1, NumaWish::kPrefer).error().code, ErrorCode::kInvalidArgument);
  const Status refused = place_on_node(nowhere, 4096, kMostNumaNodes - 1, NumaWish::kRequire);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("memory node 1023"));
}

}  // namespace
}  // namespace cairn
