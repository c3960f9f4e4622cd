// The JSON pieces of the gateway and the text of HTTP: pure functions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <cmath>
#include <limits>

#include "gateway/error_reply.h"
#include "gateway/http_wire.h"
#include "gateway/json_body.h"
#include "gateway/json_writer.h"
#include "gateway/metrics_page.h"
#include "gateway/openai_reply.h"
#include "session/text_call.h"

namespace polysil {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Quoted(std::string_view text) {
  std::string out;
  AppendJsonString(text, out);
  return out;
}

TEST(JsonWriter, EscapesWhatStrictReadersNeed) {
  EXPECT_EQ(Quoted("a\"b\\c\n\r\t"), R"("a\"b\\c\n\r\t")");
  EXPECT_EQ(Quoted(std::string_view("\0\x1f\x7f", 3)), R"("\u0000\u001f\u007f")");
  EXPECT_EQ(Quoted("\xC3\xA9\xF0\x9F\x98\x80"), "\"\xC3\xA9\xF0\x9F\x98\x80\"");
  // SSE-07: no reader of lines may break an event here.
  EXPECT_EQ(Quoted("\xE2\x80\xA8\xE2\x80\xA9\xC2\x85"), R"("\u2028\u2029\u0085")");
}

TEST(JsonWriter, IllFormedBytesBecomeReplacements) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(Quoted("a\xFF"
                   "b"),
            "\"a" + r + "b\"");
  EXPECT_EQ(Quoted("\xED\xA0\x80"), "\"" + r + r + r + "\"");
  EXPECT_EQ(Quoted("\xE6\x97"), "\"" + r + "\"");
  EXPECT_EQ(Quoted("\xC0\xAF"), "\"" + r + r + "\"");
}

// LGP-10: no Infinity, no NaN.
TEST(JsonWriter, FloatsAreAlwaysNumbers) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::string out;
  JsonWriter json(out);
  json.BeginArray().Float(-0.25F).Float(-infinity).Float(infinity).Float(std::nanf(""));
  json.Float(-1e30F).Float(-1e-20F).EndArray();
  EXPECT_EQ(out, "[-0.25,-9999,9999,-9999,-9999,-1e-20]");
}

TEST(JsonWriter, Nests) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject().Key("a").BeginArray().Int(1).Int(-2).EndArray().Key("b").BeginObject();
  json.EndObject().Key("c").Bool(true).Key("d").Null().EndObject();
  EXPECT_EQ(out, R"({"a":[1,-2],"b":{},"c":true,"d":null})");
}

// JSN-01, JSN-02, JSN-03, JSN-06, SMP-05, UTF-05: what is no JSON object is refused with a place.
TEST(ParseBody, RefusesWhatIsNoJsonObject) {
  const std::string deep_list(100'000, '[');
  std::string deep_object;
  for (int i = 0; i < 50'000; ++i) deep_object += "{\"a\":";
  const std::vector<std::string> bodies = {"",
                                           "{:",
                                           "[]",
                                           "\"x\"",
                                           "1",
                                           "null",
                                           "{\"messages\":",
                                           "{\"a\":1,}",
                                           "{\"a\":1} x",
                                           "\xEF\xBB\xBF{\"a\":1}",
                                           "{\"a\":NaN}",
                                           "{\"a\":Infinity}",
                                           "{\"a\":-Infinity}",

                                           "{\"a\":\"\xFF\",\"temperature\":\"abc\"}",
                                           "{\"prompt\":\"\xC4\xE3\xBA\xC3\"}",
                                           "{\"a\":\"\xC0\xAF\"}",
                                           "{\"a\":\"\xED\xA0\x80\"}",
                                           "{\"a\":\"\xF4\x90\x80\x80\"}",
                                           "{\"a\":\"\xE6\x97\"}",
                                           "{\"\xFF\":1}",
                                           R"({"a":"a\ud800b"})",
                                           R"({"a":"\udc00\ud800"})",
                                           R"({"a":"\ud83d"})",
                                           "{\"a\":\"\n\"}",
                                           std::string(1100, '['),
                                           deep_list,
                                           deep_object,
                                           "{\"a\":" + deep_list,
                                           std::string("{\"a\":1}\0", 8),
                                           "{'a':1}",
                                           "{\"a\":01}"};
  for (const std::string& body : bodies) {
    const auto parsed = ParseBody(body);
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument) << body.substr(0, 80);
    const std::string message = Message(parsed.status());
    EXPECT_THAT(message, HasSubstr("body")) << body.substr(0, 80);
    EXPECT_TRUE(std::all_of(message.begin(), message.end(), [](char c) { return c >= 0x20; }));
  }
}

TEST(ParseBody, SaysWhere) {
  EXPECT_THAT(Message(ParseBody("{\"a\": tru}").status()), HasSubstr("near byte 6"));
  EXPECT_THAT(Message(ParseBody("{\"a\":1}  x").status()), HasSubstr("near byte 9"));
}

TEST(ParseBody, AcceptsPairsNulAndTheLastOfEqualKeys) {
  EXPECT_EQ(ParseBody(R"({"a":"\ud83d\ude00"})")->at("a").as_string(), "\xF0\x9F\x98\x80");
  EXPECT_EQ(ParseBody(R"({"a":"x\u0000y"})")->at("a").as_string().size(), 3u);
  EXPECT_EQ(ParseBody(R"({"a":1,"a":5})")->at("a").as_int64(), 5);  // JSN-08
  EXPECT_TRUE(ParseBody(" \n{} \r\n").ok());
}

TEST(FieldReader, TypesAndNull) {
  boost::json::object object =
      boost::json::parse(
          R"({"i":5,"f":5.0,"h":5.5,"big":1e300,"huge":18446744073709551615,"neg":-7,
          "n":null,"b":true,"s":"x","l":["a","b"],"m":["a",1],"ids":[1,2.0]})")
          .as_object();
  FieldReader fields(object);
  EXPECT_EQ(fields.Int("i", 0, 9), 5);
  EXPECT_EQ(fields.Int("f", 0, 9), 5);
  EXPECT_EQ(fields.Bits64("huge"), 18446744073709551615ULL);
  EXPECT_EQ(fields.Bits64("neg"), static_cast<uint64_t>(-7));
  EXPECT_EQ(fields.Float("h"), 5.5F);
  EXPECT_EQ(fields.Float("i"), 5.0F);
  EXPECT_FALSE(fields.Int("n", 0, 9).has_value());
  EXPECT_FALSE(fields.Bool("absent").has_value());
  EXPECT_EQ(fields.Bool("b"), true);
  EXPECT_THAT(fields.Strings("s"), ElementsAre("x"));
  EXPECT_THAT(fields.Strings("l"), ElementsAre("a", "b"));
  EXPECT_THAT(fields.TokenIds("ids"), ElementsAre(1, 2));
  EXPECT_TRUE(fields.status().ok());

  const auto refused = [&](auto read) {
    FieldReader reader(object);
    read(reader);
    return FieldOf(reader.status());
  };
  EXPECT_EQ(refused([](FieldReader& r) { r.Int("h", 0, 9); }), "h");
  EXPECT_EQ(refused([](FieldReader& r) { r.Int("i", 0, 4); }), "i");
  EXPECT_EQ(refused([](FieldReader& r) { r.Int("b", 0, 9); }), "b");
  EXPECT_EQ(refused([](FieldReader& r) { r.Int("big", 0, 9); }), "big");
  EXPECT_EQ(refused([](FieldReader& r) { r.Int32("huge"); }), "huge");
  EXPECT_EQ(refused([](FieldReader& r) { r.Int64("huge"); }), "huge");
  EXPECT_EQ(refused([](FieldReader& r) { r.Int64("h"); }), "h");
  EXPECT_EQ(refused([](FieldReader& r) { r.Float("big"); }), "big");
  EXPECT_EQ(refused([](FieldReader& r) { r.Float("s"); }), "s");
  EXPECT_EQ(refused([](FieldReader& r) { r.Bool("i"); }), "i");
  EXPECT_EQ(refused([](FieldReader& r) { r.String("i"); }), "i");
  EXPECT_EQ(refused([](FieldReader& r) { r.Strings("m"); }), "m");
  EXPECT_EQ(refused([](FieldReader& r) { r.Strings("b"); }), "b");
  EXPECT_EQ(refused([](FieldReader& r) { r.TokenIds("l"); }), "l");
  EXPECT_EQ(refused([](FieldReader& r) { r.Object("l"); }), "l");
  EXPECT_EQ(refused([](FieldReader& r) { r.Array("s"); }), "s");
  EXPECT_EQ(refused([](FieldReader& r) { r.Bits64("h"); }), "h");
  // The first refusal stands.
  EXPECT_EQ(refused([](FieldReader& r) {
              r.Bool("s");
              r.Bool("i");
            }),
            "s");
}

// JSN-07.
TEST(FieldReader, TokenIdsOutOfRange) {
  for (const char* list : {"[5279552648203111001]", "[18446744073709551615]", "[1.5]", "[1,\"a\"]",
                           "[2147483648]", "[-2147483649]", "[null]", "[[1]]", "[1e300]"}) {
    const boost::json::value value = boost::json::parse(list);
    EXPECT_EQ(FieldOf(ReadTokenIds(value.as_array(), "prompt").status()), "prompt") << list;
  }
}

// LGP-08.
TEST(TokenLabel, BytesThatAreNoText) {
  EXPECT_EQ(TokenLabel("\xC3\xA9", true), "\xC3\xA9");
  EXPECT_EQ(TokenLabel("\xF0\x9F", true), "\\xf0\\x9f");
  EXPECT_EQ(TokenLabel("\xF0\x9F", false), "bytes:\\xf0\\x9f");
  EXPECT_EQ(TokenLabel("", true), "");
}

TEST(ErrorReply, CodesFieldsAndRetryAfter) {
  const HttpReply reply =
      ErrorReply(WithReason(WithField(InvalidArgument("bad \"x\"\n"), "n"), "why"), std::nullopt);
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.body,
            R"({"error":{"message":"bad \"x\"\n","type":"invalid_request_error","param":"n",)"
            R"("code":"why"}})");
  EXPECT_TRUE(reply.headers.empty());
  const HttpReply full = ErrorReply(ResourceExhausted("full"), 7);
  EXPECT_EQ(full.status, 429);
  EXPECT_THAT(full.headers, ElementsAre(std::pair<std::string, std::string>("Retry-After", "7")));
  EXPECT_EQ(ErrorReply(Unavailable("x"), 7).status, 503);
  EXPECT_EQ(ErrorReply(DeadlineExceeded("x"), std::nullopt).status, 504);
  EXPECT_EQ(ErrorReply(Internal("x"), std::nullopt).status, 500);
  EXPECT_EQ(ErrorReply(NotFound("x"), std::nullopt).status, 404);
}

TEST(HttpWire, HeadAndChunks) {
  EXPECT_EQ(FormatHead({.status = 404,
                        .content_type = "t",
                        .content_length = 3,
                        .keep_alive = false,
                        .request_id = "r",
                        .headers = {{"X", "a\r\nY: b"}}}),
            "HTTP/1.1 404 Not Found\r\nServer: polysil\r\nContent-Type: t\r\nContent-Length: 3\r\n"
            "X-Request-Id: r\r\nX: a  Y: b\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(FormatChunk("0123456789abcdef!"), "11\r\n0123456789abcdef!\r\n");
}

TEST(HttpWire, Paths) {
  EXPECT_EQ(PathOf("/a/b?x=1"), "/a/b");
  EXPECT_EQ(PathOf("http://host:80/a"), "/a");
  EXPECT_EQ(PathOf("http://host"), "/");
  EXPECT_EQ(PathOf("/v1/models/org%2Fname"), "/v1/models/org/name");
  EXPECT_EQ(PathOf("/%e2%82%ac"), "/\xE2\x82\xAC");
  for (const char* bad : {"", "*", "a/b", "/%", "/%1", "/%zz"}) {
    EXPECT_FALSE(PathOf(bad).has_value()) << bad;
  }
}

TEST(HttpWire, RequestIds) {
  EXPECT_TRUE(IsSafeRequestId("abc-123_X.y:z/=+@"));
  EXPECT_TRUE(IsSafeRequestId(std::string(128, 'a')));
  for (const std::string& bad :
       {std::string(), std::string(129, 'a'), std::string("a b"), std::string("a\"b"),
        std::string("\xC3\xA9"), std::string("a\nb")}) {
    EXPECT_FALSE(IsSafeRequestId(bad));
  }
}

TEST(MetricsPage, HasEveryNameOfTheContract) {
  EngineStats stats;
  stats.requests_running = 3;
  stats.requests_refused = 4;
  stats.step_duration_s = {.bounds = {0.1, 1.0}, .counts = {1, 2, 3}, .sum = 7.5};
  LatencyTotals segments;
  LatencySegments call;
  call[LatencySegment::kQueue] = 250'000'000;
  segments.Observe(call);
  const std::string page = MetricsPage(stats, segments.Read());
  for (const char* line :
       {"# TYPE polysil_requests_running gauge\npolysil_requests_running 3\n",
        "\npolysil_requests_waiting 0\n",
        "\npolysil_kv_blocks_total 0\n",
        "\npolysil_kv_blocks_used 0\n",
        "\npolysil_kv_blocks_cached 0\n",
        "\npolysil_kv_host_blocks_total 0\n",
        "\npolysil_kv_host_blocks_used 0\n",
        "\npolysil_kv_blocks_copied_out_total 0\n",
        "\npolysil_kv_blocks_copied_in_total 0\n",
        "\npolysil_requests_total{outcome=\"refused\"} 4\n",
        "\npolysil_requests_total{outcome=\"stop\"} 0\n",
        "\npolysil_requests_total{outcome=\"length\"} 0\n",
        "\npolysil_requests_total{outcome=\"cancelled\"} 0\n",
        "\npolysil_requests_total{outcome=\"deadline\"} 0\n",
        "\npolysil_requests_total{outcome=\"error\"} 0\n",
        "# TYPE polysil_prompt_tokens_total counter\npolysil_prompt_tokens_total 0\n",
        "\npolysil_generation_tokens_total 0\n",
        "\npolysil_prefix_cache_query_tokens_total 0\n",
        "\npolysil_prefix_cache_hit_tokens_total 0\n",
        "\npolysil_preemptions_total 0\n",
        "# TYPE polysil_time_to_first_token_seconds histogram\n",
        "# TYPE polysil_inter_token_latency_seconds histogram\n",
        "# TYPE polysil_request_duration_seconds histogram\n",
        "\npolysil_step_duration_seconds_count 6\npolysil_step_duration_seconds_sum 7.5\n"
        "polysil_step_duration_seconds_bucket{le=\"0.1\"} 1\n"
        "polysil_step_duration_seconds_bucket{le=\"1\"} 3\n"
        "polysil_step_duration_seconds_bucket{le=\"+Inf\"} 6\n",
        "# TYPE polysil_request_segment_seconds histogram\n",
        "\npolysil_request_segment_seconds_count{segment=\"queue\"} 1\n"
        "polysil_request_segment_seconds_sum{segment=\"queue\"} 0.25\n",
        "\npolysil_request_segment_seconds_bucket{segment=\"flush\",le=\"+Inf\"} 1\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

}  // namespace
}  // namespace polysil
