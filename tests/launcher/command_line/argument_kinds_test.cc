#include "launcher/command_line/argument_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launcher/command_line/commands.h"

namespace strata::launcher {
namespace {

using testing::HasSubstr;

// Every command of the program.
struct Program {
  Program() {
    add_train(app, status);
    add_launch(app, status, {});
    add_node_agent(app, status);
    add_plan(app, status);
    add_eval(app, status);
    add_generate(app, status);
    add_predict(app, status);
    add_export(app, status);
    add_tokenize(app, status);
    add_inspect(app, status);
    add_doctor(app, status);
    add_report(app, status);
    add_keys(app);
    add_ctl(app, status);
    add_top(app, status);
    add_calibrate(app, status);
    add_bench(app, status);
  }
  // Calls f(command, option) for each option whose type begins with one of these words.
  template <typename F>
  void for_each_of(std::initializer_list<const char*> types, F&& f) {
    for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
      for (CLI::Option* option : command->get_options())
        for (const char* type : types)
          if (option->get_type_name().starts_with(type)) f(command->get_name(), *option);
  }

  CLI::App app;
  int status = 0;
};

// How the command line reads a text; empty if it refuses the text, with the reason in `why`.
template <typename T>
std::string taken(CLI::Option& option, const std::string& text, std::string* why = nullptr) {
  option.clear();
  option.add_result(text);
  try {
    option.run_callback();
    return std::to_string(option.as<T>());
  } catch (const CLI::ParseError& error) {
    if (why) *why = error.what();
    return {};
  }
}

// A file after an option's value does not belong to the option: strata tokenize --labels label train.csv.
TEST(ArgumentKinds, NoOptionTakesArgumentsAfterItsValue) {
  Program program;
  int options = 0;
  for (CLI::App* command : program.app.get_subcommands([](const CLI::App*) { return true; }))
    for (const CLI::Option* option :
         command->get_options([](const CLI::Option* one) { return !one->get_positional(); })) {
      ++options;
      EXPECT_LE(option->get_items_expected_max(), 1) << command->get_name() << " " << option->get_name();
      EXPECT_FALSE(option->get_allow_extra_args()) << command->get_name() << " " << option->get_name();
    }
  EXPECT_GT(options, 100);
  CLI::Option& labels = *program.app.get_subcommand("tokenize")->get_option("--labels");
  labels.add_result("toxic,threat");
  EXPECT_THAT(labels.as<std::vector<std::string>>(), testing::ElementsAre("toxic", "threat"));
}

TEST(ArgumentKinds, IntegersAreDecimal) {
  Program program;
  int options = 0;
  program.for_each_of({"INT", "UINT"}, [&](const std::string& command, CLI::Option& option) {
    SCOPED_TRACE(command + " " + option.get_name());
    ++options;
    const bool small = taken<std::int64_t>(option, "12") == "12";
    const std::string good = small ? "12" : "4096";
    EXPECT_EQ(taken<std::int64_t>(option, good), good);
    std::string why;
    EXPECT_EQ(taken<std::int64_t>(option, "0" + good, &why), "");
    EXPECT_THAT(why, HasSubstr("0" + good + " begins with a zero: write " + good));
    for (const char* text : {"08", "0x10", "0X1000", "1e3", "12.0", "0b1", "1'000", " 12", "12 ", "+12", "12k", "",
                             "-1", "-012", "18446744073709551615", "9223372036854775808", "99999999999999999999",
                             "340282366920938463463374607431768211468"})
      EXPECT_EQ(taken<std::int64_t>(option, text), "") << text;
  });
  EXPECT_GT(options, 10);
}

TEST(ArgumentKinds, OtherNumbersAreDecimal) {
  Program program;
  int options = 0;
  program.for_each_of({"FLOAT"}, [&](const std::string& command, CLI::Option& option) {
    SCOPED_TRACE(command + " " + option.get_name());
    ++options;
    EXPECT_EQ(taken<double>(option, "0.5"), "0.500000");
    EXPECT_EQ(taken<double>(option, "5e-1"), "0.500000");
    for (const char* text : {"0x1", "0x1p-1", "nan", "inf", "-1", "1e-400", "1e400", "0.5f", "0,5", ""})
      EXPECT_EQ(taken<double>(option, text), "") << text;
  });
  EXPECT_GT(options, 2);
}

TEST(ArgumentKinds, IntegersHaveTheirLimits) {
  CLI::App app;
  std::int64_t x = 0;
  CLI::Option& option = *app.add_option("--x", x)->check(integer(0, 9223372036854775807));
  EXPECT_EQ(taken<std::int64_t>(option, "9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(taken<std::int64_t>(option, "0"), "0");
  EXPECT_EQ(taken<std::int64_t>(option, "-0"), "0");
  std::string why;
  EXPECT_EQ(taken<std::int64_t>(option, "9223372036854775808", &why), "");
  EXPECT_THAT(why, HasSubstr("9223372036854775808 is not an integer from 0 to 9223372036854775807"));
}

}  // namespace
}  // namespace strata::launcher
