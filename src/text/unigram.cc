#include "text/unigram.h"

#include <algorithm>
#include <cmath>

#include "text/utf8.h"

namespace polysil {
namespace {

constexpr double kUnknownPenalty = 10.0;
constexpr size_t kNodesMax = size_t{1} << 24;  // a parent and a byte fit in 32 bits

uint64_t HashEdge(uint32_t key) {
  return (key * 0x9E3779B97F4A7C15ull) >> 20;
}

}  // namespace

StatusOr<std::unique_ptr<const UnigramModel>> UnigramModel::Build(UnigramVocabulary vocabulary) {
  std::unique_ptr<UnigramModel> model(new UnigramModel(std::move(vocabulary)));
  model->unknown_score_ = model->vocabulary_.score_min - kUnknownPenalty;
  RETURN_IF_ERROR(model->BuildTrie());
  return std::unique_ptr<const UnigramModel>(std::move(model));
}

Status UnigramModel::BuildTrie() {
  nodes_.emplace_back();
  edges_.assign(16, Edge());
  edge_mask_ = edges_.size() - 1;
  for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
    const UnigramToken& token = vocabulary_.tokens[i];
    if (token.text.empty()) continue;
    if (token.text.size() > kTokenBytesMax) {
      return InvalidArgument("token {} has {} bytes, at most {} are accepted", token.id,
                             token.text.size(), kTokenBytesMax);
    }
    uint32_t node = 0;
    for (const char c : token.text) node = AddChild(node, static_cast<uint8_t>(c));
    if (nodes_.size() >= kNodesMax) return InvalidArgument("the tokens are too long in total");
    nodes_[node].token = static_cast<int32_t>(i);
  }
  return OkStatus();
}

uint32_t UnigramModel::Child(uint32_t node, uint8_t byte) const {
  const uint32_t key = node << 8 | byte;
  for (size_t at = HashEdge(key) & edge_mask_;; at = (at + 1) & edge_mask_) {
    const Edge& edge = edges_[at];
    if (edge.child == 0 || edge.key == key) return edge.child;
  }
}

uint32_t UnigramModel::AddChild(uint32_t node, uint8_t byte) {
  if (const uint32_t child = Child(node, byte)) return child;
  if ((edges_used_ + 1) * 2 > edges_.size()) GrowEdges();
  const auto child = static_cast<uint32_t>(nodes_.size());
  nodes_.emplace_back();
  const uint32_t key = node << 8 | byte;
  size_t at = HashEdge(key) & edge_mask_;
  while (edges_[at].child != 0) at = (at + 1) & edge_mask_;
  edges_[at] = {key, child};
  ++edges_used_;
  return child;
}

void UnigramModel::GrowEdges() {
  std::vector<Edge> old(edges_.size() * 2);
  old.swap(edges_);
  edge_mask_ = edges_.size() - 1;
  for (const Edge& edge : old) {
    if (edge.child == 0) continue;
    size_t at = HashEdge(edge.key) & edge_mask_;
    while (edges_[at].child != 0) at = (at + 1) & edge_mask_;
    edges_[at] = edge;
  }
}

void UnigramModel::Encode(std::string_view piece, std::vector<TokenId>& ids) const {
  std::vector<Best> best(piece.size() + 1);
  best[0].reached = true;
  for (size_t at = 0; at < piece.size(); at += DecodeUtf8(piece.substr(at)).bytes) {
    Relax(at, piece, best);
  }
  std::vector<size_t> ends;  // of the tokens of the best way, last first
  for (size_t end = piece.size(); end > 0; end = best[end].begin) ends.push_back(end);
  size_t unknown_begin = piece.size();  // of the run of unknown characters in work
  for (size_t i = ends.size(); i-- > 0;) {
    const Best& step = best[ends[i]];
    if (step.token < 0) {
      unknown_begin = std::min(unknown_begin, step.begin);
      if (i > 0 && best[ends[i - 1]].token < 0) continue;
      EmitUnknown(piece.substr(unknown_begin, ends[i] - unknown_begin), ids);
      unknown_begin = piece.size();
      continue;
    }
    ids.push_back(vocabulary_.tokens[static_cast<size_t>(step.token)].id);
  }
}

// Offers every token that begins at `begin` to the place where it ends.
void UnigramModel::Relax(size_t begin, std::string_view piece, std::vector<Best>& best) const {
  const double so_far = best[begin].score;
  const auto offer = [&](size_t end, double score, int32_t token) {
    Best& target = best[end];
    if (!target.reached || score > target.score) target = {score, begin, token, true};
  };
  const size_t character_end = begin + DecodeUtf8(piece.substr(begin)).bytes;
  bool has_character = false;
  uint32_t node = 0;
  for (size_t at = begin; at < piece.size(); ++at) {
    node = Child(node, static_cast<uint8_t>(piece[at]));
    if (node == 0) break;
    const int32_t token = nodes_[node].token;
    if (token < 0) continue;
    offer(at + 1, so_far + vocabulary_.tokens[static_cast<size_t>(token)].score, token);
    if (at + 1 == character_end) has_character = true;
  }
  if (!has_character) offer(character_end, so_far + unknown_score_, -1);
}

void UnigramModel::EmitUnknown(std::string_view text, std::vector<TokenId>& ids) const {
  const bool has_bytes = std::all_of(text.begin(), text.end(), [this](char c) {
    return vocabulary_.byte_ids[static_cast<uint8_t>(c)] != UnigramVocabulary::kNone;
  });
  if (has_bytes) {
    for (const char c : text) ids.push_back(vocabulary_.byte_ids[static_cast<uint8_t>(c)]);
  } else if (vocabulary_.unknown_id) {
    ids.push_back(*vocabulary_.unknown_id);
  }
}

}  // namespace polysil
