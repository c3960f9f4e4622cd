// BoundedQueue: values from many threads to one or more, in order, never more than `items_max`.
// Thread-safe. Push never blocks: at the bound it says no and the caller refuses at its own door.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace polysil {

template <typename T>
class BoundedQueue final {
 public:
  explicit BoundedQueue(size_t items_max) : items_(items_max) {}

  // False when full or closed; `item` is then untouched.
  [[nodiscard]] bool TryPush(T&& item) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || size_ == items_.size()) return false;
      items_[(front_ + size_) % items_.size()] = std::move(item);
      ++size_;
    }
    changed_.notify_one();
    return true;
  }

  // Waits for an item; none once the queue is closed and empty.
  std::optional<T> Pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || size_ > 0; });
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
    return size_;
  }

 private:
  std::optional<T> TakeFront() {
    if (size_ == 0) return std::nullopt;
    std::optional<T> item = std::exchange(items_[front_], std::nullopt);
    front_ = (front_ + 1) % items_.size();
    --size_;
    return item;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<T>> items_;  // a ring: size_ of them from front_ on
  size_t front_ = 0;
  size_t size_ = 0;
  bool closed_ = false;
};

}  // namespace polysil
