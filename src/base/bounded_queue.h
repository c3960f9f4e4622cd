// BoundedQueue: values from many threads to one or more, in order, never more than `items_max`.
// Thread-safe. Push never blocks: at the bound it says no and the caller refuses at its own door.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace polysil {

template <typename T>
class BoundedQueue final {
 public:
  explicit BoundedQueue(size_t items_max) : items_max_(items_max) {}

  // False when full or closed; `item` is then untouched.
  [[nodiscard]] bool TryPush(T&& item) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= items_max_) return false;
      items_.push_back(std::move(item));
    }
    changed_.notify_one();
    return true;
  }

  // Waits for an item; none once the queue is closed and empty.
  std::optional<T> Pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !items_.empty(); });
    return TakeFront();
  }

  std::optional<T> TryPop() {
    std::lock_guard lock(mutex_);
    return TakeFront();
  }

  // No more pushes; what is queued may still be popped.
  void Close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  std::optional<T> TakeFront() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  const size_t items_max_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace polysil
