// `polysil`: reads the command line and runs one sub-command.
// Exit codes: 0 done, 1 it failed (one sentence on stderr), 2 the command line is wrong.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <string>

#include "cli/bench_command.h"
#include "cli/commands.h"
#include "cli/model_options.h"
#include "cli/text_output.h"
#include "daemon/config.h"
#include "daemon/daemon.h"

namespace polysil {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

// A command that loads a model quietly and runs `command` on it.
template <typename Command>
Status RunQuietly(const ModelOptions& options, Command command) {
  ASSIGN_OR_RETURN(const v1::Config config, ReadQuietConfig(options));
  return command(config);
}

// Each command keeps what it parsed in an object that lives as long as the app.
struct ServeCommand {
  ModelOptions options;
  std::string name;
  std::string http;
  std::string grpc;

  void Add(CLI::App& app, Status& status) {
    CLI::App* command = app.add_subcommand("serve", "serve a model");
    AddModelOptions(*command, options);
    command->add_option("--name", name, "what clients give as \"model\"");
    command->add_option("--http", http, "address of the HTTP face, 127.0.0.1:8080; off for none")
        ->type_name("HOST:PORT");
    command->add_option("--grpc", grpc, "address of the gRPC face, 127.0.0.1:50051; off for none")
        ->type_name("HOST:PORT");
    command->callback([this, &status] { status = Run(); });
  }

  Status Run() const {
    BlockStopSignals();
    ASSIGN_OR_RETURN(v1::Config config, ReadConfig(options));
    if (!name.empty()) config.mutable_model()->set_name(name);
    if (!http.empty()) config.mutable_server()->set_http(http);
    if (!grpc.empty()) config.mutable_server()->set_grpc(grpc);
    ASSIGN_OR_RETURN(config, Complete(std::move(config)));
    RETURN_IF_ERROR(ApplyLogLevel(config));
    return Serve(options.path, config);
  }
};

struct GenerateCommand {
  ModelOptions options;
  GenerateArgs args;

  void Add(CLI::App& app, Status& status) {
    CLI::App* command = app.add_subcommand("generate", "complete one prompt");
    AddModelOptions(*command, options);
    command->add_option("-p,--prompt", args.prompt, "text to complete")->required();
    command->add_option("-n,--max-tokens", args.tokens_max, "at most this many tokens, 128");
    command->add_option("-t,--temperature", args.temperature, "0 takes the likeliest token");
    command->add_option("--seed", args.seed, "makes sampling repeatable");
    command->callback([this, &status] {
      args.model_path = options.path;
      status = RunQuietly(options, [&](const auto& config) { return RunGenerate(args, config); });
    });
  }
};

struct ChatCommand {
  ModelOptions options;
  ChatArgs args;

  void Add(CLI::App& app, Status& status) {
    CLI::App* command = app.add_subcommand("chat", "talk with a model, line by line");
    AddModelOptions(*command, options);
    command->add_option("--system", args.system, "system message");
    command->add_option("-t,--temperature", args.temperature, "0 takes the likeliest token");
    command->callback([this, &status] {
      args.model_path = options.path;
      status = RunQuietly(options, [&](const auto& config) { return RunChat(args, config); });
    });
  }
};

struct TokenizeCommand {
  TokenizeArgs args;
  bool no_bos = false;

  void Add(CLI::App& app, Status& status) {
    CLI::App* command = app.add_subcommand("tokenize", "stdin to token ids");
    command->add_option("model", args.model_path, "a .gguf file or a model folder")
        ->required()
        ->type_name("MODEL");
    command->add_flag("--control", args.parse_control_tokens,
                      "the text of a control token becomes that token");
    command->add_flag("--no-bos", no_bos, "no BOS token in front, even where the model wants one");
    command->callback([this, &status] {
      args.add_bos = !no_bos;
      status = RunTokenize(args);
    });
  }
};

struct InspectCommand {
  std::string path;

  void Add(CLI::App& app, Status& status) {
    CLI::App* command = app.add_subcommand("inspect", "what a model file holds");
    command->add_option("file", path, "a .gguf file or a model folder")
        ->required()
        ->type_name("FILE");
    command->callback([this, &status] { status = RunInspect(path); });
  }
};

struct SimCommand {
  SimArgs args;

  void Add(CLI::App& app, Status& status) {
    CLI::App* command = app.add_subcommand("sim", "run the engine's core in a simulator");
    CLI::Option_group* what = command->add_option_group("what to run");
    CLI::Option* seeds = what->add_option("--seeds", args.seeds,
                                          "so many random runs, as 1:2000; stops at a failure")
                             ->type_name("FROM:COUNT");
    what->add_option("--seed", args.seed, "one random run");
    CLI::Option* trace =
        what->add_option("--trace", args.trace_path, "replay requests in the Mooncake format")
            ->type_name("FILE");
    what->require_option(1);
    command->add_option("--kv-blocks", args.kv_blocks, "for a trace: blocks of 512 tokens, 10000")
        ->needs(trace)
        ->check(CLI::Range(1, 1 << 22));
    command->add_option("--until-tick", args.until_tick, "end there and print the last ticks")
        ->excludes(seeds)
        ->check(CLI::PositiveNumber);
    command->add_option("--json", args.json_path, "write the results there")
        ->excludes(seeds)
        ->type_name("FILE");
    command->add_option("--svg", args.svg_path, "draw the run over time there")
        ->excludes(seeds)
        ->type_name("FILE");
    command->callback([this, &status] { status = RunSim(args); });
  }
};

int Main(int argc, char** argv) {
  CLI::App app("Polysil serves language models over OpenAI HTTP and gRPC.", "polysil");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "help of every command");
  Status status;
  ServeCommand serve;
  serve.Add(app, status);
  GenerateCommand generate;
  generate.Add(app, status);
  ChatCommand chat;
  chat.Add(app, status);
  TokenizeCommand tokenize;
  tokenize.Add(app, status);
  InspectCommand inspect;
  inspect.Add(app, status);
  SimCommand sim;
  sim.Add(app, status);
  BenchCommand bench;
  bench.Add(app, status);
  app.add_subcommand("version", "print the version")->callback([] {
    fmt::print("polysil {}\n", POLYSIL_VERSION);
  });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  if (status.ok()) status = FlushStdout();
  if (status.ok()) return 0;
  fmt::print(stderr, "polysil: {}\n", Message(status));
  return kExitFailed;
}

}  // namespace
}  // namespace polysil

int main(int argc, char** argv) {
  return polysil::Main(argc, argv);
}
