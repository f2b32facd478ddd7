#include "cairn/wire/rank_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cairn/base/byte_stream.h"
#include "cairn/hash/hash_bytes.h"
#include "cairn/wire/rank_message_testing.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;
using Next = Result<std::optional<RankDecoder::Received>>;

constexpr std::size_t kHeader = 24;

Bytes frame_of(const RankMessage& message, std::uint32_t generation = 7) {
  Bytes bytes;
  encode(message, generation, bytes);
  return bytes;
}

Next decode(std::span<const std::byte> bytes) {
  RankDecoder decoder;
  decoder.feed(bytes);
  return decoder.next();
}

// Refused, or incomplete.
bool gives_nothing(const Next& next) { return !next || !next->has_value(); }

// A frame with any contents and a valid hash.
Bytes forged(std::uint16_t kind, const Bytes& payload) {
  Bytes header;
  ByteWriter out(header);
  out.raw(std::as_bytes(std::span("CRNK", 4)));
  out.put(kRankProtocol);
  out.put(kind);
  out.put(std::uint32_t{7});
  out.count(payload.size());
  out.put(hash_bytes(payload, hash_bytes(header, 0)));
  out.raw(payload);
  return header;
}

Bytes payload_of(const RankMessage& message) {
  const Bytes frame = frame_of(message);
  return {frame.begin() + kHeader, frame.end()};
}

template <typename Message>
std::uint16_t kind_of() {
  return static_cast<std::uint16_t>(RankMessage(Message{}).index() + 1);
}

TEST(RankMessageTest, EveryMessageComesBack) {
  RankMessageMaker maker(1);
  for (int round = 0; round < 200; ++round) {
    for (std::size_t kind = 0; kind < kRankMessageKinds; ++kind) {
      const RankMessage message = maker.make(kind);
      ASSERT_EQ(message.index(), kind);
      const auto generation = static_cast<std::uint32_t>(maker.number());
      const Next next = decode(frame_of(message, generation));
      ASSERT_TRUE(next && next->has_value()) << "kind " << kind << ", round " << round;
      EXPECT_EQ((*next)->generation, generation);
      EXPECT_EQ((*next)->message, message) << "kind " << kind << ", round " << round;
    }
  }
}

TEST(RankMessageTest, AFrameIsAsDocumented) {
  const Bytes bytes = frame_of(RankPing{0x0102030405060708}, 0xAABBCCDD);
  ByteReader in(bytes);
  const std::span<const std::byte> magic = in.raw(4);
  EXPECT_EQ(std::memcmp(magic.data(), "CRNK", 4), 0);
  EXPECT_EQ(in.get<std::uint16_t>(), kRankProtocol);
  EXPECT_EQ(in.get<std::uint16_t>(), 11);
  EXPECT_EQ(in.get<std::uint32_t>(), 0xAABBCCDD);
  EXPECT_EQ(in.get<std::uint32_t>(), 8U);
  const auto hash = in.get<std::uint64_t>();
  EXPECT_EQ(hash, hash_bytes(std::span(bytes).subspan(24), hash_bytes(std::span(bytes).first(16), 0)));
  EXPECT_EQ(in.get<std::uint64_t>(), 0x0102030405060708U);
  EXPECT_TRUE(in.ended_well());
}

TEST(RankMessageTest, FramesAreAppended) {
  Bytes bytes;
  encode(RankPing{1}, 2, bytes);
  encode(RankPong{3}, 4, bytes);
  RankDecoder decoder;
  decoder.feed(bytes);
  const Next first = decoder.next();
  EXPECT_EQ((*first)->message, RankMessage(RankPing{1}));
  EXPECT_EQ((*first)->generation, 2U);
  const Next second = decoder.next();
  EXPECT_EQ((*second)->message, RankMessage(RankPong{3}));
  EXPECT_EQ((*second)->generation, 4U);
  EXPECT_FALSE(decoder.next()->has_value());
}

TEST(RankMessageTest, AShortenedFrameAsksForMore) {
  RankMessageMaker maker(2);
  for (std::size_t kind = 0; kind < kRankMessageKinds; ++kind) {
    const Bytes frame = frame_of(maker.make(kind));
    for (std::size_t bytes = 0; bytes < frame.size(); ++bytes) {
      const Next next = decode(std::span(frame).first(bytes));
      ASSERT_TRUE(next.has_value()) << "kind " << kind << ", " << bytes << " bytes";
      EXPECT_FALSE(next->has_value()) << "kind " << kind << ", " << bytes << " bytes";
    }
  }
}

TEST(RankMessageTest, AFlippedBitIsNeverTaken) {
  RankMessageMaker maker(3);
  for (std::size_t kind = 0; kind < kRankMessageKinds; ++kind) {
    const Bytes frame = frame_of(maker.make(kind));
    for (std::size_t bit = 0; bit < 8 * frame.size(); ++bit) {
      Bytes flipped = frame;
      flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      ASSERT_TRUE(gives_nothing(decode(flipped))) << "kind " << kind << ", bit " << bit;
      // A larger length waits for more bytes; with them, the hash does not match.
      flipped.insert(flipped.end(), frame.begin(), frame.end());
      ASSERT_TRUE(gives_nothing(decode(flipped))) << "kind " << kind << ", bit " << bit << ", and more";
    }
  }
}

TEST(RankMessageTest, PayloadsOfOtherLengthsAreRefused) {
  RankMessageMaker maker(4);
  for (std::size_t kind = 0; kind < kRankMessageKinds; ++kind) {
    const Bytes payload = payload_of(maker.make(kind));
    const auto number = static_cast<std::uint16_t>(kind + 1);
    ASSERT_TRUE(decode(forged(number, payload))->has_value()) << "kind " << kind;
    for (std::size_t bytes = 0; bytes < payload.size(); ++bytes) {
      const Next next = decode(forged(number, Bytes(payload.begin(), payload.begin() + static_cast<int>(bytes))));
      ASSERT_FALSE(next.has_value()) << "kind " << kind << ", " << bytes << " bytes";
      EXPECT_EQ(next.error().code, ErrorCode::kCorrupt);
    }
    Bytes longer = payload;
    longer.push_back({});
    EXPECT_FALSE(decode(forged(number, longer)).has_value()) << "kind " << kind;
  }
}

TEST(RankMessageTest, ValuesThatAreNoneAreRefused) {
  const auto code = [](const Next& next) {
    EXPECT_FALSE(next.has_value());
    return next ? ErrorCode::kIo : next.error().code;
  };
  const RankTransfer copy{.pairs = {{1, 2}}, .tags = {{3, 4}}};
  for (const std::size_t level : {8U, 9U}) {
    Bytes payload = payload_of(copy);
    payload[level] = std::byte{4};
    EXPECT_EQ(code(decode(forged(kind_of<RankTransfer>(), payload))), ErrorCode::kCorrupt);
    payload[level] = std::byte{3};
    EXPECT_TRUE(decode(forged(kind_of<RankTransfer>(), payload))->has_value());
  }
  Bytes negative = payload_of(copy);
  negative[25] = std::byte{0x80};  // the last byte of its time
  EXPECT_EQ(code(decode(forged(kind_of<RankTransfer>(), negative))), ErrorCode::kCorrupt);
  Bytes many = payload_of(copy);
  for (std::size_t i = 26; i < 30; ++i) many[i] = std::byte{0xFF};  // the count of its pairs
  EXPECT_EQ(code(decode(forged(kind_of<RankTransfer>(), many))), ErrorCode::kCorrupt);

  Bytes state = payload_of(RankTransferOutcome{.states = {BlockState::kCancelled}, .sums = {{9, 8}}, .error = ""});
  EXPECT_TRUE(decode(forged(kind_of<RankTransferOutcome>(), state))->has_value());
  state[28] = std::byte{5};
  EXPECT_EQ(code(decode(forged(kind_of<RankTransferOutcome>(), state))), ErrorCode::kCorrupt);

  for (const std::uint16_t kind : {0, 13, 0xFFFF}) {
    const Next next = decode(forged(kind, {}));
    EXPECT_EQ(code(next), ErrorCode::kCorrupt);
    EXPECT_THAT(next.error().message, HasSubstr("kind " + std::to_string(kind)));
  }
}

TEST(RankMessageTest, AnotherVersionIsRefusedByName) {
  Bytes frame = frame_of(RankPing{1});
  frame[4] = std::byte{9};
  for (const std::size_t bytes : {std::size_t{6}, frame.size()}) {
    const Next next = decode(std::span(frame).first(bytes));
    ASSERT_FALSE(next.has_value());
    EXPECT_EQ(next.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(next.error().message, HasSubstr("the peer speaks version 9 of the rank protocol, this program"));
  }
}

TEST(RankMessageTest, AnotherProtocolIsRefusedAtOnce) {
  const Next next = decode(std::as_bytes(std::span("GET ", 4)));
  ASSERT_FALSE(next.has_value());
  EXPECT_THAT(next.error().message, HasSubstr("does not speak the rank protocol"));
}

TEST(RankMessageTest, PayloadsHaveABound) {
  const auto header = [](std::uint32_t bytes) {
    Bytes out;
    ByteWriter writer(out);
    writer.raw(std::as_bytes(std::span("CRNK", 4)));
    writer.put(kRankProtocol);
    writer.put(kind_of<RankBroadcast>());
    writer.put(std::uint32_t{1});
    writer.put(bytes);
    writer.put(std::uint64_t{0});
    return out;
  };
  EXPECT_TRUE(gives_nothing(decode(header(kMaxPayload))));
  EXPECT_TRUE(decode(header(kMaxPayload)).has_value()) << "the rest may come";
  const Next beyond = decode(header(kMaxPayload + 1));
  ASSERT_FALSE(beyond.has_value());
  EXPECT_THAT(beyond.error().message, HasSubstr("67108865 bytes"));

  const RankBroadcast larger{Bytes(kMaxPayload - 3)};
  EXPECT_DEATH(frame_of(larger), "fits in a frame");
}

TEST(RankMessageTest, ListsThatBelongTogetherAreOfOneLength) {
  EXPECT_DEATH(frame_of(RankTransfer{.pairs = {{1, 2}}, .tags = {}}), "every pair of a transfer has a tag");
  EXPECT_DEATH(frame_of(RankTransferOutcome{.states = {BlockState::kDone}, .sums = {}, .error = ""}), "has sums");
}

TEST(RankMessageTest, WhatIsOverdueHasNoTimeLeft) {
  const Next next = decode(frame_of(RankTransfer{.time_left = Duration(-5), .pairs = {}, .tags = {}}));
  EXPECT_EQ(std::get<RankTransfer>((*next)->message).time_left, Duration::zero());
}

TEST(RankDecoderTest, ByteByByteIsAsWhole) {
  RankMessageMaker maker(5);
  std::vector<RankMessage> sent;
  Bytes stream;
  for (int i = 0; i < 300; ++i) {
    sent.push_back(maker.any());
    encode(sent.back(), static_cast<std::uint32_t>(i), stream);
  }
  for (const std::size_t piece : {std::size_t{1}, std::size_t{23}, std::size_t{1000}, stream.size()}) {
    RankDecoder decoder;
    std::size_t got = 0;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      decoder.feed(std::span(stream).subspan(at, std::min(piece, stream.size() - at)));
      for (Next next = decoder.next();; next = decoder.next()) {
        ASSERT_TRUE(next.has_value()) << "piece " << piece;
        if (!next->has_value()) break;
        ASSERT_LT(got, sent.size());
        ASSERT_EQ((*next)->message, sent[got]) << "message " << got << ", piece " << piece;
        ASSERT_EQ((*next)->generation, got++);
      }
    }
    EXPECT_EQ(got, sent.size()) << "piece " << piece;
  }
}

TEST(RankDecoderTest, AnErrorIsFinal) {
  RankDecoder decoder;
  Bytes bad = frame_of(RankPing{1});
  bad.back() ^= std::byte{1};
  decoder.feed(frame_of(RankPong{2}));
  decoder.feed(bad);
  EXPECT_TRUE(decoder.next()->has_value()) << "messages before it are valid";
  const Next first = decoder.next();
  ASSERT_FALSE(first.has_value());
  decoder.feed(frame_of(RankPing{1}));
  const Next second = decoder.next();
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().message, first.error().message);
}

// A stranger's frame is refused by its header, before a byte of its payload is kept.
TEST(RankMessageTest, FramesMayBeLimitedUntilThePeerIsKnown) {
  RankDecoder decoder(kMaxHelloPayload);
  const Bytes hello = frame_of(RankHello{}, 0);
  ASSERT_LE(hello.size(), kHeader + kMaxHelloPayload);
  decoder.feed(hello);
  EXPECT_TRUE(decoder.next()->has_value());
  EXPECT_EQ(decoder.buffered(), 0U);
  EXPECT_EQ(decoder.room(), kHeader + kMaxHelloPayload);
  const Bytes large = frame_of(RankBroadcast{Bytes(kMaxHelloPayload)}, 0);
  decoder.feed(std::span(large).first(kHeader));
  const Next refused = decoder.next();
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message,
              HasSubstr("at most 256 are allowed until the peer has proven that it knows the secret"));
  EXPECT_EQ(decoder.buffered(), 0U);

  RankDecoder known(kMaxHelloPayload);
  known.set_max_payload(kMaxPayload);
  known.feed(large);
  EXPECT_TRUE(known.next()->has_value());
}

}  // namespace
}  // namespace cairn
