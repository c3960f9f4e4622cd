#include "cli/bench_command.h"

#include <utility>

#include "daemon/config.h"

namespace polysil {

void BenchCommand::AddOffline(CLI::App& bench, Status& status) {
  CLI::App* command = bench.add_subcommand("offline", "speed of a model without network");
  AddModelOptions(*command, model_);
  OfflineOptions& rows = offline_.rows;
  command
      ->add_option("--prompt", rows.prompts, "rows of prompts of so many tokens, 512,2048; 0: none")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("--generate", rows.generates, "rows of so many generated tokens, 128; 0: none")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--depth", rows.depths, "tokens before either, 0,1500,6000")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("--streams", rows.streams,
                   "rows of so many streams at once, 1,4,8,16,32; 0: none")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--stream-prompt", rows.stream_prompt, "tokens of each stream's prompt, 128");
  command->add_option("--repetitions", rows.repetitions, "counted rounds of all rows, 5")
      ->check(CLI::Range(1, 10'000));
  command->add_option("--threads", threads_, "compute threads, as --set cpu.threads");
  command->add_option("--json", offline_.json_path, "write the results there")->type_name("FILE");
  command->add_option("--svg", offline_.svg_path, "draw the roofline there")->type_name("FILE");
  command->callback([this, &status] { status = RunOffline(); });
}

void BenchCommand::AddServe(CLI::App& bench, Status& status) {
  CLI::App* command = bench.add_subcommand("serve", "load on an OpenAI-compatible server");
  LoadOptions& load = serve_.load;
  command->add_option("--url", load.url, "of the server, http://127.0.0.1:8080")->required();
  command->add_option("--model", load.model, "what it serves; the first that it lists");
  command->add_option("--api-key", load.api_key, "sent as a bearer token; or OPENAI_API_KEY")
      ->envname("OPENAI_API_KEY");
  command->add_flag("--chat", load.chat, "/v1/chat/completions instead of /v1/completions");
  command->add_option("--rate", load.rate, "open loop: sessions a second");
  command->add_option("--burstiness", load.burstiness,
                      "shape of the gaps: 1 is Poisson, less comes in bursts");
  command->add_option("--concurrency", load.concurrency, "closed loop: so many sessions at once");
  command->add_option("--trace", load.trace_path, "replay requests in the Mooncake format")
      ->type_name("FILE");
  command->add_option("--speed", load.speed, "of the trace, 1");
  command->add_option("--requests", load.requests, "sessions, 100; with a trace: all of it");
  command->add_option("--duration", load.duration_s, "seconds in which sessions begin");
  AddPrompts(*command);
  command->add_option("--cancel-after-tokens", load.cancel_after_tokens,
                      "the client leaves after so many");
  command->add_option("--cancel-share", load.cancel_share, "of the requests, 1");
  command->add_option("--ttft-limit-ms", load.ttft_limit_ms, "of a good request");
  command->add_option("--tpot-limit-ms", load.tpot_limit_ms, "of a good request");
  command->add_option("--timeout", load.timeout_s, "seconds for a request, 600");
  command->add_option("--seed", load.seed, "makes prompts and arrivals repeatable, 1");
  command->add_option("--json", serve_.json_path, "write the results there")->type_name("FILE");
  command->add_option("--requests-jsonl", serve_.requests_path, "write a line for each request")
      ->type_name("FILE");
  command->callback([this, &status] { status = RunBenchServe(serve_); });
}

void BenchCommand::AddPrompts(CLI::App& command) {
  LoadOptions& load = serve_.load;
  command.add_option("--prompts", load.prompts_path, "JSONL with turns, prompt or text")
      ->type_name("FILE");
  command.add_option("--input-tokens", load.input_tokens, "random words, 128 tokens");
  command.add_option("--shared-prefix-tokens", load.shared_prefix_tokens,
                     "the same words before every prompt");
  command.add_option("--turns", load.turns, "requests of a session, 1");
  command.add_option("--output-tokens", load.output_tokens, "of each answer, 128");
  command.add_flag("--stop-at-end", load.stop_at_end, "an end token ends an answer");
}

void BenchCommand::Add(CLI::App& app, Status& status) {
  CLI::App* bench = app.add_subcommand("bench", "measure a model, or a server");
  bench->require_subcommand(1);
  AddOffline(*bench, status);
  AddServe(*bench, status);
}

Status BenchCommand::RunOffline() {
  if (threads_) model_.settings.push_back(fmt::format("cpu.threads={}", *threads_));
  ASSIGN_OR_RETURN(const v1::Config config, ReadQuietConfig(model_));
  offline_.model_path = model_.path;
  return RunBenchOffline(offline_, config);
}

}  // namespace polysil
