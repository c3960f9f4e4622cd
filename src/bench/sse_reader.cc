#include "bench/sse_reader.h"

namespace polysil {

bool SseReader::TakeLine() {
  constexpr std::string_view kField = "data";
  const bool ends_event = line_.empty();
  std::string_view line = line_;
  if (line.starts_with(kField) && (line.size() == kField.size() || line[kField.size()] == ':')) {
    line.remove_prefix(std::min(line.size(), kField.size() + 1));
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (has_data_) data_ += '\n';
    data_ += line;
    has_data_ = true;
  }
  line_.clear();
  return ends_event && has_data_;
}

void SseReader::ClearEvent() {
  data_.clear();
  has_data_ = false;
}

}  // namespace polysil
