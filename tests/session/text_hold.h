// TextHold: keeps a text thread of a TextService busy, as a very long text would, until released.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>

#include "session/text_service.h"

namespace polysil {

class TextHold final {
 public:
  explicit TextHold(TextService& service) {
    std::promise<void> begun;
    std::future<void> has_begun = begun.get_future();
    const auto shared_begun = std::make_shared<std::promise<void>>(std::move(begun));
    const std::shared_future<void> released = release_.get_future().share();
    EXPECT_TRUE(service
                    .Run(1 << 20, {},
                         [shared_begun, released] {
                           shared_begun->set_value();
                           released.wait();
                         })
                    .ok());
    has_begun.wait();
  }
  void Release() { release_.set_value(); }

 private:
  std::promise<void> release_;
};

}  // namespace polysil
