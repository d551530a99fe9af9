//! The texts of `el`'s help pages, in both languages.

use runwhere_model::Lang;

use crate::texts::{HelpEntry, Table, row, translate_with, with};

/// Puts the texts on the command line.
pub(super) fn translated(command: clap::Command, lang: Lang) -> clap::Command {
    translate_with(command, &Table { rows: ROWS, notes }, lang)
}

fn notes(lang: Lang) -> &'static str {
    match lang {
        Lang::Zh => {
            "
退出码：
  0    成功
  1    出错，或任务失败
  2    参数有误
  130  被中断（Ctrl-C）

环境变量：
  ENVLOOP_BASE_URL                             服务地址
  ENVLOOP_API_KEY                              API key
  ENVLOOP_WORKSPACE_ID, ENVLOOP_PROJECT_ID     工作区和项目
  ENVLOOP_HOME                                 代替 ~/.envloop
  RUNWHERE_LANG                                界面语言：zh 或 en
"
        }
        Lang::En => {
            "
Exit codes:
  0    success
  1    an error, or the job failed
  2    wrong arguments
  130  interrupted (Ctrl-C)

Environment variables:
  ENVLOOP_BASE_URL                             address of the server
  ENVLOOP_API_KEY                              API key
  ENVLOOP_WORKSPACE_ID, ENVLOOP_PROJECT_ID     workspace and project
  ENVLOOP_HOME                                 replaces ~/.envloop
  RUNWHERE_LANG                                language of texts: zh or en
"
        }
    }
}

const ROWS: &[HelpEntry] = &[
    with(
        "",
        "提交和管理已发布 Runner 的任务",
        "Submit and manage jobs of published runners",
        "el runner list --json\nel job submit --type train --spec gpu-run.json\nel job log JOB_ID --follow",
    ),
    row("--lang", "界面语言", "Language of texts"),
    row("--help", "显示帮助", "Print help"),
    row("--version", "显示版本", "Print the version"),
    row("--limit", "每页行数", "Rows of a page"),
    row("--cursor", "从上一页的结尾继续", "Where an earlier page ended"),
    row("--json", "输出 JSON", "Print JSON"),
    row("job", "任务", "Jobs"),
    with(
        "job submit",
        "提交任务：用请求文件，或用参数",
        "Submit a job: from a request file, or with options",
        "el job submit --type train --spec gpu-run.json\nel job submit --type train --runner envloop/bash@0123456789abcdef0123456789abcdef01234567 --trials 2 --gpu-type H100 --gpu 4 --request-id gpu-run-001\nel job submit --type train --spec gpu-run.json --gpu 8 --wait",
    ),
    row("job submit --type", "任务类型，只有 train", "Kind of job; only train is served"),
    row(
        "job submit --spec",
        "请求文件（JSON）；其他参数覆盖各 Trial 的对应字段",
        "Request file (JSON); the other options override the fields of each trial",
    ),
    row(
        "job submit --runner",
        "Runner 和完整 commit：namespace/name@commit",
        "Runner and full commit, namespace/name@commit",
    ),
    row(
        "job submit --trials",
        "Trial 数量，1 到 16（默认 1）",
        "Number of trials, 1 to 16 (1 without)",
    ),
    row("job submit --gpu-type", "每个 Trial 的 GPU 型号", "GPU model of each trial"),
    row("job submit --gpu", "每个 Trial 的 GPU 数量", "GPUs of each trial"),
    row(
        "job submit --docker",
        "代替 Runner 镜像的公开镜像",
        "Public image instead of the runner's",
    ),
    row("job submit --cpu", "每个 Trial 的 CPU 数量", "CPUs of each trial"),
    row(
        "job submit --memory",
        "每个 Trial 的内存，例如 64Gi",
        "Memory of each trial, such as 64Gi",
    ),
    row("job submit --disk", "每个 Trial 的磁盘，例如 100Gi", "Disk of each trial, such as 100Gi"),
    row(
        "job submit --shm-size",
        "每个 Trial 的共享内存，例如 16Gi",
        "Shared memory of each trial, such as 16Gi",
    ),
    row(
        "job submit --command",
        "交给 Runner 的命令，逐字节原样",
        "Command, handed to the runner byte for byte",
    ),
    row(
        "job submit --timeout-seconds",
        "每个 Trial 的超时（秒）",
        "Time-out of each trial in seconds",
    ),
    row(
        "job submit --request-id",
        "同一 id 和相同输入重复提交，返回第一个任务",
        "Repeats with this id and the same input return the first job",
    ),
    row("job submit --wait", "等到结束", "Wait for the end"),
    with(
        "job list",
        "列出任务",
        "List jobs",
        "el job list --type train --status running --limit 5",
    ),
    row("job list --type", "只看这种类型", "Only jobs of this type"),
    row("job list --status", "只看这种状态", "Only jobs in this state"),
    with("job get", "查看任务", "Show a job", "el job get JOB_ID"),
    row("job get <id>", "任务 id", "Id of the job"),
    with("job result", "查看任务结果", "Show a job's result", "el job result JOB_ID"),
    row("job result <id>", "任务 id", "Id of the job"),
    with("job stop", "停止任务", "Stop a job", "el job stop JOB_ID"),
    row("job stop <id>", "任务 id", "Id of the job"),
    with(
        "job log",
        "查看任务日志",
        "Show a job's log",
        "el job log JOB_ID --follow\nel job log JOB_ID --source runtime --tail 50 --json",
    ),
    row("job log <id>", "任务 id", "Id of the job"),
    row("job log --source", "来源：all、system 或 runtime", "all, system or runtime"),
    row("job log --tail", "从最后多少行开始", "Last lines to begin with"),
    row("job log --cursor", "从上一页的结尾继续", "Where an earlier page ended"),
    row("job log --limit", "每页行数", "Lines of a page"),
    row("job log --follow", "持续到日志结束", "Go on until the log ends"),
    row("job log --json", "每行输出一页 JSON", "Pages as JSON, one a line"),
    with("job event", "查看任务发生过什么", "Show what happened to a job", "el job event JOB_ID"),
    row("job event <id>", "任务 id", "Id of the job"),
    row("trial", "任务的各个 Trial", "Trials of jobs"),
    with(
        "trial list",
        "列出 Trial",
        "List trials",
        "el trial list --type train --job-id JOB_ID --json",
    ),
    row("trial list --type", "只看这种类型", "Only trials of this type"),
    row("trial list --job-id", "只看这个任务的", "Only trials of this job"),
    with("trial get", "查看 Trial", "Show a trial", "el trial get TRIAL_ID"),
    row("trial get <id>", "Trial id", "Id of the trial"),
    with("trial stop", "停止 Trial", "Stop a trial", "el trial stop TRIAL_ID"),
    row("trial stop <id>", "Trial id", "Id of the trial"),
    with("trial result", "查看 Trial 结果", "Show a trial's result", "el trial result TRIAL_ID"),
    row("trial result <id>", "Trial id", "Id of the trial"),
    with(
        "trial snapshot",
        "查看为 Trial 冻结的内容",
        "Show what was frozen for a trial",
        "el trial snapshot TRIAL_ID",
    ),
    row("trial snapshot <id>", "Trial id", "Id of the trial"),
    row("trial artifact", "Trial 的输出", "Outputs of a trial"),
    with(
        "trial artifact list",
        "列出输出",
        "List a trial's artifacts",
        "el trial artifact list TRIAL_ID",
    ),
    row("trial artifact list <trial>", "Trial id", "Id of the trial"),
    with(
        "trial artifact download",
        "下载输出并校验",
        "Download a trial's artifacts and verify them",
        "el trial artifact download TRIAL_ID out",
    ),
    row("trial artifact download <id>", "Trial id", "Id of the trial"),
    row("trial artifact download <folder>", "放文件的目录", "Folder to put the files in"),
    row("runner", "已发布的 Runner", "Published runners"),
    with("runner list", "列出有权读取的 Runner", "List readable runners", "el runner list --json"),
    with(
        "runner get",
        "查看 Runner，或它的一个版本",
        "Show a runner, or one revision of it",
        "el runner get envloop/bash",
    ),
    row(
        "runner get <runner>",
        "namespace/name，或 namespace/name@commit",
        "namespace/name, or namespace/name@commit",
    ),
    with(
        "runner revisions",
        "列出 Runner 的版本",
        "List the revisions of a runner",
        "el runner revisions envloop/bash",
    ),
    row("runner revisions <runner>", "namespace/name 即名字", "namespace/name"),
    with(
        "runner publish",
        "发布 Git 工作区的一个 commit",
        "Publish a commit of a Git work tree",
        "el runner publish ./my-runner --name team/my-runner\nel runner publish ./my-runner --name team/my-runner --visibility public",
    ),
    row(
        "runner publish <folder>",
        "干净 Git 工作区里 Runner 的目录",
        "Folder of the runner in a clean Git work tree",
    ),
    row("runner publish --name", "发布为 namespace/name", "namespace/name to publish as"),
    row(
        "runner publish --commit",
        "要发布的 commit；不写为 HEAD",
        "Commit to publish; HEAD without",
    ),
    row("runner publish --visibility", "谁可以读取", "Who may read it"),
    row(
        "content",
        "Profile 的 recipe、dataset 和 plugin",
        "Recipes, datasets and plugins of profiles",
    ),
    with(
        "content publish",
        "发布一个目录",
        "Publish a folder",
        "el content publish recipes ./recipe --name team/sft\nel content publish datasets ./data --name team/smoke --version smoke-1\nel content publish plugins ./plugin --name team/logger --version 1",
    ),
    row("content publish <kind>", "种类", "What it is"),
    row(
        "content publish <folder>",
        "含 recipe.toml、dataset.toml 或 plugin.toml 的目录",
        "Folder with recipe.toml, dataset.toml or plugin.toml",
    ),
    row("content publish --name", "发布为 namespace/name", "namespace/name to publish as"),
    row(
        "content publish --version",
        "dataset 或 plugin 的版本；recipe 以摘要识别",
        "Version of a dataset or plugin; a recipe is known by its digest",
    ),
    row("content publish --visibility", "谁可以读取", "Who may read it"),
    with(
        "content list",
        "列出有权读取的内容",
        "List readable content",
        "el content list datasets\nel content list recipes --name team/sft --json",
    ),
    row("content list <kind>", "种类", "What it is"),
    row("content list --name", "只看这个 namespace/name", "Only this namespace/name"),
    with(
        "content get",
        "查看内容及其 manifest",
        "Show content with its manifest",
        "el content get envloop://datasets/team/smoke@smoke-1\nel content get envloop://recipes/team/sft",
    ),
    row(
        "content get <uri>",
        "envloop://种类/namespace/name@版本；不写 @版本 为最新",
        "envloop://KIND/namespace/name@revision; without @revision the newest",
    ),
    with(
        "content approve",
        "允许本项目的 Profile 绑定一个 plugin",
        "Let profiles of this project bind a plugin",
        "el content approve envloop://plugins/team/logger@1",
    ),
    row("content approve <uri>", "plugin 的 envloop:// 地址", "envloop:// address of the plugin"),
    with(
        "content withdraw",
        "收回对 plugin 的允许",
        "End a plugin's approval",
        "el content withdraw envloop://plugins/team/logger@1",
    ),
    row("content withdraw <uri>", "plugin 的 envloop:// 地址", "envloop:// address of the plugin"),
    row("checkpoint", "任务产出的 LoRA checkpoint", "Adapters that jobs have made"),
    with(
        "checkpoint list",
        "列出 checkpoint",
        "List checkpoints",
        "el checkpoint list --job-id JOB_ID",
    ),
    row("checkpoint list --job-id", "只看这个任务的", "Only those of this job"),
    with(
        "checkpoint download",
        "下载 checkpoint 并校验",
        "Download a checkpoint and verify it",
        "el checkpoint download envloop://JOB_ID/CHECKPOINT_ID adapter",
    ),
    row(
        "checkpoint download <id>",
        "checkpoint 的 id 或 envloop:// 地址",
        "Id or envloop:// address of the checkpoint",
    ),
    row("checkpoint download <folder>", "放文件的目录", "Folder to put the files in"),
    with(
        "checkpoint delete",
        "删除 checkpoint；文件仍是一般输出",
        "Delete a checkpoint; its files stay artifacts",
        "el checkpoint delete CHECKPOINT_ID",
    ),
    row("checkpoint delete <id>", "checkpoint 的 id", "Id of the checkpoint"),
    row("auth", "服务、API key 和项目", "Server, key and project"),
    with(
        "auth login",
        "用浏览器登录",
        "Log in with the browser",
        "el auth login --base-url http://127.0.0.1:8080",
    ),
    row("auth login --base-url", "服务地址", "Address of the server"),
    row("auth login --timeout", "最长等待（秒）", "Longest wait in seconds"),
    row("auth login --no-browser", "只打印地址", "Only print the address"),
    with("auth status", "查看 API key 属于谁", "Show who the key is", "el auth status"),
    row("auth config", "已保存的设置", "Stored settings"),
    with(
        "auth config show",
        "查看生效的设置（不含 key）",
        "Show the settings that are in force, without the key",
        "el auth config show",
    ),
    with(
        "auth config set",
        "修改设置",
        "Change a setting",
        "el auth config set base-url http://127.0.0.1:8080\nel auth config set api-key --stdin",
    ),
    row(
        "auth config set <name>",
        "名称：base-url、workspace-id、project-id 或 api-key",
        "base-url, workspace-id, project-id or api-key",
    ),
    row(
        "auth config set <value>",
        "值；key 只能从标准输入读取",
        "Its value; a key is read from standard input only",
    ),
    row("auth config set --stdin", "从标准输入读取值", "Read the value from standard input"),
    row("billing", "费用", "Money"),
    row("billing account", "项目预算", "The project's budget"),
    with("billing account get", "查看预算", "Show it", "el billing account get"),
    row("billing usage", "用量", "What was used"),
    with(
        "billing usage list",
        "按天或其他方式汇总一段时间的用量",
        "Sum up what was used in a span of days",
        "el billing usage list --start 2026-07-01 --end 2026-08-01 --group-by sku",
    ),
    row(
        "billing usage list --start",
        "第一天，或带时区偏移的时刻",
        "First day, or an instant with its offset",
    ),
    row(
        "billing usage list --end",
        "最后一天的后一天，或带时区偏移的时刻",
        "Day after the last, or an instant with its offset",
    ),
    row("billing usage list --group-by", "汇总方式", "What to sum up by"),
    row("billing ledger", "账目", "Money records"),
    with("billing ledger list", "最新的记录", "Newest entries", "el billing ledger list --json"),
    row("billing price", "可启动资源的价格", "Prices of what can be launched"),
    with("billing price list", "列出价格", "List prices", "el billing price list"),
    row("limit", "项目限额", "Limits of the project"),
    row("limit get", "查看限额", "Show them"),
    row("dashboard", "概览", "Overview"),
    row("dashboard get", "API key 属于谁，以及最新的任务", "Who the key is, and the newest jobs"),
    with(
        "completions",
        "打印补全脚本",
        "Print a completion script",
        "el completions bash\nel completions zsh",
    ),
    row("completions <shell>", "Shell 名称", "Shell"),
];

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::args::Cli;
    use super::*;
    use crate::texts::checks;

    #[test]
    fn every_command_and_option_has_its_row_and_no_row_is_left_over() {
        checks::rows_fit(&Cli::command(), ROWS);
    }

    #[test]
    fn every_example_parses_in_both_languages() {
        checks::examples_parse(|lang| translated(Cli::command(), lang), ROWS);
    }

    #[test]
    fn help_pages_are_in_one_language() {
        let is_cjk = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
        let mut chinese = translated(Cli::command(), Lang::Zh);
        let shown = chinese.render_long_help().to_string();
        for word in ["用法", "命令", "示例", "退出码", "提交和管理"] {
            assert!(shown.contains(word), "{word}: {shown}");
        }
        checks::languages_are_apart(ROWS);
        let mut english = translated(Cli::command(), Lang::En);
        assert!(!english.render_long_help().to_string().chars().any(is_cjk));
    }

    #[test]
    fn submit_help_lists_the_documents_flags() {
        for lang in [Lang::Zh, Lang::En] {
            let error = translated(Cli::command(), lang)
                .try_get_matches_from(["el", "job", "submit", "--help"])
                .unwrap_err();
            let shown = error.render().to_string();
            for flag in [
                "--spec",
                "--runner",
                "--trials",
                "--gpu-type",
                "--gpu ",
                "--docker",
                "--cpu",
                "--memory",
                "--disk",
                "--shm-size",
                "--command",
                "--timeout-seconds",
                "--request-id",
                "--wait",
            ] {
                assert!(shown.contains(flag), "{flag}: {shown}");
            }
            for never in ["--tags", "--trails", "--gput-type", "--profile"] {
                assert!(!shown.contains(never), "{never}: {shown}");
            }
        }
    }

    #[test]
    fn a_typo_is_told_with_what_was_meant() {
        for (line, words) in [
            ("el job submit --gpu-typ H100", "--gpu-type"),
            ("el job submit --trails 2", "--trials"),
            ("el job sumbit", "submit"),
            ("el content publish recipe x --name a/b", "recipes"),
            ("el runner publish x --name a/b --visibility pubic", "public"),
        ] {
            let error = Cli::command().try_get_matches_from(line.split(' ')).unwrap_err();
            let told = crate::usage_error::usage_error(&error);
            let hint = told.hint.as_ref().map(|hint| hint.get(Lang::Zh)).unwrap_or_default();
            assert!(hint.contains(words), "{line}: {hint}");
        }
    }
}
