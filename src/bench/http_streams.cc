#include "bench/http_streams.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "polysil/base/check.h"

namespace polysil {
namespace {

constexpr long kConnectionsKept = 4096;
constexpr int64_t kNsPerUs = 1000;
constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kWaitMsMax = 1000;

HttpFailure FailureOf(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return HttpFailure::kNone;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
      return HttpFailure::kConnect;
    case CURLE_OPERATION_TIMEDOUT:
      return HttpFailure::kTimeout;
    default:
      return HttpFailure::kBroken;
  }
}

// One request. Stays where it is: curl holds pointers into it.
struct Transfer {
  CURL* easy = nullptr;
  std::unique_ptr<HttpStream> stream;
  std::string body;
  int64_t started_ns = 0;
  bool dropped = false;
  std::array<char, CURL_ERROR_SIZE> message = {};

  Transfer() : easy(curl_easy_init()) { CHECK(easy != nullptr, "no memory for a request"); }
  ~Transfer() { curl_easy_cleanup(easy); }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  int32_t Status() const {
    long status = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    return static_cast<int32_t>(status);
  }

  HttpEnd End(CURLcode code) const {
    HttpEnd end{.status = Status(), .failure = dropped ? HttpFailure::kDropped : FailureOf(code)};
    if (code != CURLE_OK) {
      end.message = message[0] != '\0' ? message.data() : curl_easy_strerror(code);
    }
    const char* type = nullptr;
    curl_easy_getinfo(easy, CURLINFO_CONTENT_TYPE, &type);
    if (type != nullptr) end.content_type = type;
    curl_off_t until_sent_us = 0;
    curl_easy_getinfo(easy, CURLINFO_PRETRANSFER_TIME_T, &until_sent_us);
    end.sent_ns = started_ns + until_sent_us * kNsPerUs;
    return end;
  }
};

// Anything but the size ends the transfer.
size_t TakeBytes(char* bytes, size_t size, size_t count, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  if (!transfer->stream->OnBytes(transfer->Status(), {bytes, size * count})) {
    transfer->dropped = true;
    return 0;
  }
  return size * count;
}

}  // namespace

class HttpStreams::Transfers final {
 public:
  Transfers(const HttpOptions& options, const Clock& clock, CURLM* multi)
      : options_(options), clock_(clock), multi_(multi) {
    curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, kConnectionsKept);
    // "Expect:" would make the server answer twice to large requests.
    for (const char* header :
         {"Content-Type: application/json", "Accept: text/event-stream, */*", "Expect:"}) {
      headers_ = curl_slist_append(headers_, header);
    }
    if (!options_.api_key.empty()) {
      headers_ = curl_slist_append(headers_, ("Authorization: Bearer " + options_.api_key).c_str());
    }
  }
  ~Transfers() {
    for (const auto& [easy, transfer] : live_) curl_multi_remove_handle(multi_, easy);
    live_.clear();
    curl_multi_cleanup(multi_);
    curl_slist_free_all(headers_);
    curl_global_cleanup();
  }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  void Start(const std::string& url, std::string body, std::unique_ptr<HttpStream> stream) {
    auto transfer = std::make_unique<Transfer>();
    CURL* easy = transfer->easy;
    transfer->stream = std::move(stream);
    transfer->body = std::move(body);
    curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(options_.timeout_ms));
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers_);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->message.data());
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &TakeBytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer.get());
    if (!transfer->body.empty()) {
      curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                       static_cast<curl_off_t>(transfer->body.size()));
      curl_easy_setopt(easy, CURLOPT_POSTFIELDS, transfer->body.data());
    }
    transfer->started_ns = clock_.NowNs();
    CHECK(curl_multi_add_handle(multi_, easy) == CURLM_OK, "a new request was not taken");
    live_.emplace(easy, std::move(transfer));
  }

  void Poll(int64_t timeout_ns) {
    Perform();
    const int64_t wait_ms =
        std::clamp<int64_t>((timeout_ns + kNsPerMs - 1) / kNsPerMs, 0, kWaitMsMax);
    if (wait_ms > 0) {
      curl_multi_poll(multi_, nullptr, 0, static_cast<int>(wait_ms), nullptr);
      Perform();
    }
  }

  int64_t in_flight() const { return static_cast<int64_t>(live_.size()); }

 private:
  void Perform() {
    int running = 0;
    curl_multi_perform(multi_, &running);
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      const auto it = live_.find(message->easy_handle);
      CHECK(it != live_.end(), "curl tells of a request that is none");
      const std::unique_ptr<Transfer> transfer = std::move(it->second);
      live_.erase(it);
      curl_multi_remove_handle(multi_, transfer->easy);
      transfer->stream->OnEnd(transfer->End(code));
    }
  }

  const HttpOptions options_;
  const Clock& clock_;
  CURLM* const multi_;
  curl_slist* headers_ = nullptr;
  std::map<CURL*, std::unique_ptr<Transfer>> live_;
};

StatusOr<std::unique_ptr<HttpStreams>> HttpStreams::Create(const HttpOptions& options,
                                                           const Clock& clock) {
  if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return Internal("libcurl does not start");
  CURLM* multi = curl_multi_init();
  if (multi == nullptr) return Internal("libcurl does not start");
  return std::unique_ptr<HttpStreams>(
      new HttpStreams(std::make_unique<Transfers>(options, clock, multi)));
}

HttpStreams::HttpStreams(std::unique_ptr<Transfers> transfers) : transfers_(std::move(transfers)) {}
HttpStreams::~HttpStreams() = default;

void HttpStreams::Start(const std::string& url, std::string body,
                        std::unique_ptr<HttpStream> stream) {
  transfers_->Start(url, std::move(body), std::move(stream));
}
void HttpStreams::Poll(int64_t timeout_ns) {
  transfers_->Poll(timeout_ns);
}
int64_t HttpStreams::in_flight() const {
  return transfers_->in_flight();
}

}  // namespace polysil
