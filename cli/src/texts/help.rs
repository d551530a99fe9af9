//! The texts of help pages.

mod table;

pub use table::HELP;

use super::Lang;

/// One row of the help table.
#[derive(Debug)]
pub struct HelpEntry {
    /// Command words, then `--option` or `<argument>` (by its id); empty for the whole program.
    pub path: &'static str,
    /// Chinese text.
    pub zh: &'static str,
    /// English text.
    pub en: &'static str,
    /// Examples, command lines only.
    pub examples: &'static str,
}

/// A row without examples.
pub(crate) const fn row(path: &'static str, zh: &'static str, en: &'static str) -> HelpEntry {
    HelpEntry { path, zh, en, examples: "" }
}

/// A row with examples.
pub(crate) const fn with(
    path: &'static str,
    zh: &'static str,
    en: &'static str,
    examples: &'static str,
) -> HelpEntry {
    HelpEntry { path, zh, en, examples }
}

/// Puts the texts of `lang` on `command` and everything below it.
#[must_use]
pub fn translate(command: clap::Command, lang: Lang) -> clap::Command {
    translate_with(command, &Table { rows: HELP, notes: program_notes }, lang)
}

/// The texts of one program.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// A row for every visible command and argument.
    pub rows: &'static [HelpEntry],
    /// What follows the help of the whole program.
    pub notes: fn(Lang) -> &'static str,
}

/// The same with the texts of another program.
#[must_use]
pub fn translate_with(command: clap::Command, table: &Table, lang: Lang) -> clap::Command {
    let globals = table.rows.iter().filter(|entry| entry.path.starts_with("--"));
    let globals: Vec<_> = globals.collect();
    below(command, "", table, &globals, lang)
}

/// What belongs to all commands: exit codes and variables.
fn program_notes(lang: Lang) -> &'static str {
    match lang {
        Lang::Zh => {
            "
退出码：
  0    成功
  1    本机错误（文件、输出、本机服务）
  2    参数或任务 YAML 有误
  3    服务器拒绝，或未登录
  4    无法连接服务器
  10   跟随的任务没有成功（程序自己的退出码写在文字里）
  130  被中断（Ctrl-C）

环境变量：
  RUNW_ENDPOINT, RUNW_TOKEN  服务器地址和 Token（优先于 ~/.runwhere/config.toml）
  RUNWHERE_LANG              界面语言：zh 或 en
  RUNWHERE_JSON              1 等同于 --json
  RUNWHERE_HOME              代替 ~/.runwhere
"
        }
        Lang::En => {
            "
Exit codes:
  0    success
  1    something on this machine went wrong (files, output, the server in this process)
  2    wrong arguments or task YAML
  3    the server refused, or there is no login
  4    the server cannot be reached
  10   the followed job did not succeed (the program's own code is in the text)
  130  interrupted (Ctrl-C)

Environment variables:
  RUNW_ENDPOINT, RUNW_TOKEN  server address and token (win over ~/.runwhere/config.toml)
  RUNWHERE_LANG              language of texts: zh or en
  RUNWHERE_JSON              1 is the same as --json
  RUNWHERE_HOME              replaces ~/.runwhere
"
        }
    }
}

/// What the parser would add in English: the default and the possible values of an argument.
fn chinese_notes(argument: &clap::Arg) -> String {
    let mut notes = String::new();
    let default: Vec<_> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !default.is_empty() {
        notes.push_str(&format!("（默认 {}）", default.join(", ")));
    }
    let possible: Vec<_> =
        argument.get_possible_values().iter().map(|one| one.get_name().to_owned()).collect();
    if !possible.is_empty() {
        notes.push_str(&format!("（可用：{}）", possible.join("、")));
    }
    notes
}

fn below(
    mut command: clap::Command,
    path: &str,
    table: &Table,
    globals: &[&HelpEntry],
    lang: Lang,
) -> clap::Command {
    let text = |entry: &HelpEntry| match lang {
        Lang::Zh => entry.zh,
        Lang::En => entry.en,
    };
    let find = |path: &str| table.rows.iter().find(|entry| entry.path == path);
    if let Some(entry) = find(path) {
        command = command.about(text(entry));
        if !entry.examples.is_empty() {
            let title = match lang {
                Lang::Zh => "示例：",
                Lang::En => "Examples:",
            };
            let lines = entry.examples.replace('\n', "\n  ");
            let more = if path.is_empty() { (table.notes)(lang) } else { "" };
            command = command.after_help(format!("{title}\n  {lines}\n{more}"));
        }
    }
    if lang == Lang::Zh {
        command = command
            .subcommand_help_heading("命令")
            .help_template("{about-with-newline}\n用法：{usage}\n\n{all-args}{after-help}");
    }
    command = command
        .disable_help_flag(true)
        .arg(clap::Arg::new("help").short('h').long("help").action(clap::ArgAction::Help));
    if path.is_empty() {
        command = command.disable_version_flag(true).arg(
            clap::Arg::new("version").short('V').long("version").action(clap::ArgAction::Version),
        );
    }
    command = command.mut_args(|argument| {
        let common =
            argument.is_global_set() || matches!(argument.get_id().as_str(), "help" | "version");
        let heading = match (lang, argument.is_positional()) {
            (Lang::Zh, true) => Some("参数"),
            (Lang::Zh, false) if common => Some("通用选项"),
            (Lang::Zh, false) => Some("选项"),
            (Lang::En, false) if common => Some("Common options"),
            (Lang::En, _) => None,
        };
        let argument = match heading {
            Some(heading) => argument.help_heading(heading),
            None => argument,
        };
        let key = match argument.get_long() {
            Some(long) => format!("--{long}"),
            None => format!("<{}>", argument.get_id()),
        };
        let own = find(format!("{path} {key}").trim_start());
        match own.or_else(|| globals.iter().copied().find(|entry| entry.path == key)) {
            Some(entry) if lang == Lang::Zh && argument.get_action().takes_values() => {
                let notes = chinese_notes(&argument);
                let help = format!("{}{notes}", entry.zh);
                argument.help(help).hide_default_value(true).hide_possible_values(true)
            }
            Some(entry) => argument.help(text(entry)),
            None => argument,
        }
    });
    command.mut_subcommands(|sub| {
        let path = format!("{path} {}", sub.get_name());
        below(sub, path.trim_start(), table, globals, lang)
    })
}

/// What the tables of both programs are held to.
#[cfg(test)]
pub(crate) mod checks {
    use std::collections::BTreeSet;

    use super::HelpEntry;
    use crate::texts::Lang;

    fn note(
        command: &clap::Command,
        path: &str,
        rows: &BTreeSet<&str>,
        used: &mut BTreeSet<String>,
    ) {
        assert!(rows.contains(path), "no row for `{path}`");
        used.insert(path.to_owned());
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let key = match argument.get_long() {
                Some(long) => format!("--{long}"),
                None => format!("<{}>", argument.get_id()),
            };
            let own = format!("{path} {key}").trim_start().to_owned();
            let found = [own, key].into_iter().find(|row| rows.contains(row.as_str()));
            used.insert(found.unwrap_or_else(|| panic!("no row for an argument of `{path}`")));
        }
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            note(sub, format!("{path} {}", sub.get_name()).trim_start(), rows, used);
        }
    }

    /// Every command and argument has a row, and no row is left over.
    pub(crate) fn rows_fit(command: &clap::Command, table: &[HelpEntry]) {
        let rows: BTreeSet<&str> = table.iter().map(|entry| entry.path).collect();
        assert_eq!(rows.len(), table.len(), "a row stands twice");
        let mut used = BTreeSet::from(["--help".to_owned(), "--version".to_owned()]);
        note(command, "", &rows, &mut used);
        let left: Vec<&&str> = rows.iter().filter(|row| !used.contains(**row)).collect();
        assert_eq!(left, Vec::<&&str>::new());
    }

    /// The examples are command lines.
    pub(crate) fn examples_parse(command: impl Fn(Lang) -> clap::Command, table: &[HelpEntry]) {
        for line in table.iter().flat_map(|entry| entry.examples.lines()) {
            let bare = line.split(" > ").next().unwrap().split(" < ").next().unwrap();
            let words = bare.split(' ').collect::<Vec<_>>().join("\u{1}");
            // Quoted examples hold one blank inside the quotes.
            let words = words.replace("'50\u{1}CNY'", "50 CNY");
            for lang in [Lang::Zh, Lang::En] {
                let parsed = command(lang).try_get_matches_from(words.split('\u{1}'));
                assert!(parsed.is_ok(), "{line}: {parsed:?}");
            }
        }
    }

    /// Chinese rows are Chinese and English ones are not.
    pub(crate) fn languages_are_apart(table: &[HelpEntry]) {
        let is_cjk = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
        for entry in table {
            assert!(entry.zh.chars().any(is_cjk) || entry.zh.is_ascii(), "{}", entry.path);
            assert!(!entry.en.chars().any(is_cjk), "{}", entry.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_and_option_has_its_row_and_no_row_is_left_over() {
        checks::rows_fit(&crate::args::Cli::command(), HELP);
    }

    #[test]
    fn every_example_parses() {
        checks::examples_parse(|lang| translate(crate::args::Cli::command(), lang), HELP);
    }

    #[test]
    fn chinese_rows_are_chinese_and_english_rows_are_not() {
        checks::languages_are_apart(HELP);
    }
}
