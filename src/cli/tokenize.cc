#include <fmt/core.h>
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/text_input.h"
#include "daemon/assemble.h"
#include "model/checkpoint.h"

namespace polysil {

Status RunTokenize(const TokenizeArgs& args) {
  ASSIGN_OR_RETURN(const std::string text, ReadStdin());
  ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, OpenCheckpoint(args.model_path));
  ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer, BuildTokenizer(*checkpoint));
  const std::vector<TokenId> ids = tokenizer->Encode(
      text, {.parse_control_tokens = args.parse_control_tokens, .add_bos = args.add_bos});
  fmt::print("{}\n", fmt::join(ids, " "));
  return OkStatus();
}

}  // namespace polysil
