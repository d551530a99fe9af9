//! Texts that belong to no topic.

use super::macros::texts;

texts! {
    /// The task file is missing.
    yaml_missing(path) "YAML 文件不存在：{path}" "YAML file not found: {path}";
    /// Several problems, each with its remedy.
    yaml_problems(count) "共 {count} 处；字段说明见 docs/task-yaml.md" "{count} problems; docs/task-yaml.md describes every field";
    /// Remedy for [`yaml_missing`].
    yaml_missing_hint() "检查 -f 路径" "Check the -f path";
    /// A file cannot be read.
    file_unreadable(path, error) "无法读取 {path}：{error}" "Cannot read {path}: {error}";
    /// A file cannot be written.
    file_unwritable(path, error) "无法写入 {path}：{error}" "Cannot write {path}: {error}";
    /// The configuration file is damaged.
    config_invalid(path) "配置文件不是有效的 TOML：{path}" "The configuration file is no valid TOML: {path}";
    /// Remedy for [`config_invalid`].
    config_invalid_hint() "修正或删除该文件，然后重新执行 runwhere login --endpoint <url>" "Repair or delete the file, then run runwhere login --endpoint <url> again";
    /// Neither `RUNWHERE_HOME` nor `HOME` is set.
    no_home() "找不到用户目录：HOME 和 RUNWHERE_HOME 都没有设置" "No home folder: neither HOME nor RUNWHERE_HOME is set";
    /// Remedy for [`no_home`].
    no_home_hint() "设置 RUNWHERE_HOME" "Set RUNWHERE_HOME";
    /// A variable is no boolean.
    boolean_invalid(name, value) "{name} 的值 '{value}' 无效：应为 1 或 0" "{name} has the value '{value}'; it must be 1 or 0";
    /// The language is unknown.
    lang_invalid(word) "--lang 的值 '{word}' 无效：应为 zh 或 en" "--lang has the value '{word}'; it must be zh or en";
    /// The variable's language is unknown.
    lang_variable(word) "RUNWHERE_LANG 的值 '{word}' 无效，已忽略：应为 zh 或 en" "RUNWHERE_LANG has the value '{word}', which is ignored: it must be zh or en";
    /// No such command.
    command_unknown(word) "没有命令 '{word}'" "There is no command '{word}'";
    /// No command given.
    command_missing(word) "{word} 缺少子命令" "{word} needs a command";
    /// No such option.
    argument_unknown(word) "不认识的参数 '{word}'" "Unknown argument '{word}'";
    /// A required argument is not given.
    argument_missing(names) "缺少参数 {names}" "Missing: {names}";
    /// An option stands twice.
    argument_twice(name) "{name} 只能出现一次" "{name} may be given only once";
    /// Two options exclude each other.
    arguments_conflict(one, other) "{one} 不能与 {other} 同时使用" "{one} cannot be used together with {other}";
    /// An option needs a value.
    value_missing(name) "{name} 缺少值" "{name} needs a value";
    /// An option has a value that it cannot have.
    value_invalid(name, value) "{name} 的值 '{value}' 无效" "'{value}' is no value for {name}";
    /// Bounds of a number.
    value_range(range) "应在 {range} 之内" "It must be in {range}";
    /// A number is wanted.
    value_number() "应为整数" "It must be a whole number";
    /// Nearest known word.
    did_you_mean(word) "您是不是想用 '{word}'？" "Did you mean '{word}'?";
    /// All possible words.
    choices(words) "可用：{words}" "Possible: {words}";
    /// The command's usage.
    usage_line(usage) "用法：{usage}" "Usage: {usage}";
    /// Where the usage stands.
    help_hint() "加 --help 查看用法" "Add --help to see the usage";
    /// Standard output cannot be written.
    stdout_failed(error) "无法写入标准输出（{error}）" "Standard output cannot be written ({error})";
    /// The address cannot be used.
    endpoint_invalid(reason) "服务器地址无效（{reason}）" "The server address is not usable ({reason})";
    /// Remedy for [`endpoint_invalid`].
    endpoint_invalid_hint() "使用 http(s)://主机:端口 的形式，不带用户名和参数" "Use the form http(s)://host:port, without user name and parameters";
    /// The token cannot stand in a header.
    token_invalid() "Token 含有空白或不可见字符" "The token holds blanks or unprintable characters";
    /// The server cannot be reached.
    network(reason) "无法连接服务器（{reason}）" "The server cannot be reached ({reason})";
    /// Remedy for [`network`].
    network_hint() "检查网络和服务器状态后重试；地址不对时用 runwhere login --endpoint <url> 更换" "Check the network and the server, then try again; runwhere login --endpoint <url> changes the address";
    /// The answer is no JSON object.
    answer_unreadable(status) "服务器的回答无法识别（HTTP {status}）" "The server's answer makes no sense (HTTP {status})";
    /// Remedy for [`answer_unreadable`].
    answer_unreadable_hint() "检查地址是否指向 runwhere 服务器" "Check that the address is that of a runwhere server";
    /// The server redirected.
    redirected(status, location) "服务器要求转到 {location}（HTTP {status}），未跟随" "The server points to {location} (HTTP {status}); not followed";
    /// Remedy for [`redirected`].
    redirected_hint() "如果新地址可信，用 runwhere login --endpoint <url> 登录到它" "If you trust that address, log in to it with runwhere login --endpoint <url>";
    /// An error without a message.
    server_status(status) "服务器返回错误（HTTP {status}）" "The server answered with an error (HTTP {status})";
    /// HTTP cannot be set up.
    http_setup(reason) "无法初始化 HTTP（{reason}）" "HTTP cannot be set up ({reason})";
    /// A call is made again.
    retrying(made, pause) "第 {made} 次请求失败，{pause} 毫秒后重试" "Attempt {made} failed, next one in {pause} ms";
    /// The asynchronous runtime cannot start.
    runtime(error) "无法启动运行时（{error}）" "The runtime cannot start ({error})";
    /// A name or id that cannot be one.
    name_invalid(name) "任务名 '{name}' 无效：只能用字母、数字、点、下划线和连字符，以字母或数字开头，最长 63 个字符" "'{name}' is no job name: letters, digits, dots, underscores and dashes, starting with a letter or digit, at most 63 characters";
    /// An amount cannot be read.
    price_invalid(text) "价格 '{text}' 无效：应为正数，可加货币，例如 50 或 \"7 USD\"" "'{text}' is no price: a positive number, with a currency if wanted, such as 50 or \"7 USD\"";
    /// A date cannot be read.
    period_invalid(from, to) "--from {from} 晚于 --to {to}" "--from {from} is after --to {to}";
    /// Not a date.
    date_invalid(text) "日期 '{text}' 无效：应为 YYYY-MM-DD" "'{text}' is no date: write YYYY-MM-DD";
    /// Not in this build.
    not_in_this_build(what) "此构建不含 {what}" "This build has no {what}";
    /// The `el` command.
    /// Interrupted.
    interrupted() "已中断" "Interrupted";
    /// A yes-or-no question.
    shall_i_go_on() "继续？" "Go on?";
    /// Version line.
    version(version) "runwhere {version}" "runwhere {version}";
    /// Word before a hint.
    arrow(text) "→ {text}" "→ {text}";
}
