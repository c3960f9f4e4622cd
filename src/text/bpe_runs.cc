// Words of one letter, or of few that repeat: a long line of blanks or dashes. Equal neighbours are
// one run, and a merge within a run is made for all of it at once.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/bpe.h"

namespace polysil {
namespace {

constexpr size_t kRunsMax = 16;
// Some vocabularies merge a run symbol by symbol; that is left to the general way.
constexpr int kRoundsMax = 1024;

struct Run {
  int32_t symbol;
  size_t count;
};

// Drops empty runs and joins neighbours of one symbol.
void Join(std::vector<Run>& runs) {
  size_t kept = 0;
  for (const Run& run : runs) {
    if (run.count == 0) continue;
    if (kept > 0 && runs[kept - 1].symbol == run.symbol) {
      runs[kept - 1].count += run.count;
    } else {
      runs[kept++] = run;
    }
  }
  runs.resize(kept);
}

}  // namespace

// The steps of the definition (the pair of the lowest rank, leftmost on ties), many at a time. True
// when no pair is left to be merged; else `symbols` are where the general way goes on.
bool BpeModel::MergeRuns(std::vector<int32_t>& symbols) const {
  std::vector<Run> runs;
  for (const int32_t symbol : symbols) {
    if (!runs.empty() && runs.back().symbol == symbol) {
      ++runs.back().count;
      continue;
    }
    if (runs.size() == kRunsMax) return false;
    runs.push_back({symbol, 1});
  }
  bool done = false;
  for (int round = 0; round < kRoundsMax && runs.size() <= kRunsMax; ++round) {
    const Pair* best = nullptr;
    size_t at = 0;
    bool within = false;
    const auto consider = [&](const Pair* pair, size_t run, bool is_within) {
      if (pair == nullptr || (best != nullptr && pair->rank >= best->rank)) return;
      best = pair;
      at = run;
      within = is_within;
    };
    for (size_t i = 0; i < runs.size(); ++i) {
      const int32_t symbol = runs[i].symbol;
      if (runs[i].count > 1) consider(FindPair(symbol, symbol), i, true);
      if (i + 1 < runs.size()) consider(FindPair(symbol, runs[i + 1].symbol), i, false);
    }
    done = best == nullptr;
    if (done) break;
    const Run run = runs[at];
    if (within) {
      // All of the run, unless what the first merge makes would go before the second.
      const auto goes_before = [&](int32_t left, int32_t right) {
        const Pair* pair = FindPair(left, right);
        return pair != nullptr && pair->rank <= best->rank;
      };
      if (goes_before(best->result, run.symbol) || goes_before(best->result, best->result) ||
          (at > 0 && goes_before(runs[at - 1].symbol, best->result))) {
        break;
      }
      runs[at] = {best->result, run.count / 2};
      runs.insert(runs.begin() + static_cast<ptrdiff_t>(at) + 1, {run.symbol, run.count % 2});
    } else {
      --runs[at].count;
      --runs[at + 1].count;
      runs.insert(runs.begin() + static_cast<ptrdiff_t>(at) + 1, {best->result, 1});
    }
    Join(runs);
  }
  symbols.clear();
  for (const Run& run : runs) symbols.insert(symbols.end(), run.count, run.symbol);
  return done;
}

}  // namespace polysil
