//! The sentences about task files, Chinese and English.
//!
//! They may reach clients that read square brackets as markup, so no sentence holds one.

use runwhere_model::Lang;

use super::file::SettingSource;
use super::problem::{Found, LengthUnit, Problem, TaskError, TaskErrors, Wanted};
use super::served::NotServed;

/// Chooses the sentence of the language.
macro_rules! say {
    ($lang:expr, $zh:literal, $en:literal) => {
        match $lang {
            Lang::Zh => format!($zh),
            Lang::En => format!($en),
        }
    };
}

pub(super) fn message(error: &TaskError, lang: Lang) -> String {
    let field = match (error.path.is_root(), lang) {
        (true, Lang::Zh) => "任务 YAML".to_owned(),
        (true, Lang::En) => "task YAML".to_owned(),
        (false, _) => error.path.dotted(),
    };
    let what = what(&error.problem, lang);
    match error.position {
        Some(at) => {
            let (line, column) = (at.line, at.column);
            say!(
                lang,
                "{field}（第 {line} 行第 {column} 列）：{what}",
                "{field} (line {line}, column {column}): {what}"
            )
        }
        None => say!(lang, "{field}：{what}", "{field}: {what}"),
    }
}

/// Most problems spelt out in one line.
const MAX_SUMMARY: usize = 10;

pub(super) fn summary(errors: &TaskErrors, lang: Lang) -> String {
    let total = errors.errors.len() + errors.more;
    if total == 1 {
        return errors.errors.first().map(|error| message(error, lang)).unwrap_or_default();
    }
    let spelt: Vec<String> =
        errors.errors.iter().take(MAX_SUMMARY).map(|error| message(error, lang)).collect();
    let more = total - spelt.len();
    let mut text = match lang {
        Lang::Zh => format!("任务 YAML 有 {total} 处问题：{}", spelt.join("；")),
        Lang::En => format!("the task YAML has {total} problems: {}", spelt.join("; ")),
    };
    if more > 0 {
        text.push_str(&say!(lang, "；另有 {more} 处", "; and {more} more"));
    }
    text
}

fn found(found: Found, lang: Lang) -> &'static str {
    match (found, lang) {
        (Found::Null, Lang::Zh) => "空值",
        (Found::Null, Lang::En) => "nothing (null)",
        (Found::Bool, Lang::Zh) => "布尔值",
        (Found::Bool, Lang::En) => "a boolean",
        (Found::Integer, Lang::Zh) => "整数",
        (Found::Integer, Lang::En) => "a whole number",
        (Found::Float, Lang::Zh) => "小数",
        (Found::Float, Lang::En) => "a number",
        (Found::Date, Lang::Zh) => "日期",
        (Found::Date, Lang::En) => "a date",
        (Found::Text, Lang::Zh) => "字符串",
        (Found::Text, Lang::En) => "a string",
        (Found::List, Lang::Zh) => "列表",
        (Found::List, Lang::En) => "a list",
        (Found::Mapping, Lang::Zh) => "mapping",
        (Found::Mapping, Lang::En) => "a mapping",
    }
}

fn wanted(wanted: Wanted, lang: Lang) -> &'static str {
    match (wanted, lang) {
        (Wanted::Mapping, Lang::Zh) => "mapping",
        (Wanted::Mapping, Lang::En) => "a mapping",
        (Wanted::List, Lang::Zh) => "列表",
        (Wanted::List, Lang::En) => "a list",
        (Wanted::Text, Lang::Zh) => "字符串",
        (Wanted::Text, Lang::En) => "a string",
        (Wanted::TextOrList, Lang::Zh) => "字符串或字符串列表",
        (Wanted::TextOrList, Lang::En) => "a string or a list of strings",
        (Wanted::Integer, Lang::Zh) => "整数",
        (Wanted::Integer, Lang::En) => "a whole number",
        (Wanted::Bool, Lang::Zh) => "true 或 false",
        (Wanted::Bool, Lang::En) => "true or false",
    }
}

/// What is wrong, without field and place.
fn what(problem: &Problem, lang: Lang) -> String {
    match problem {
        Problem::FileTooLarge { max_bytes } => {
            say!(lang, "文件超过 {max_bytes} 字节", "the file is larger than {max_bytes} bytes")
        }
        Problem::NotUtf8 => say!(lang, "文件不是 UTF-8 编码", "the file is not UTF-8"),
        Problem::ControlCharacter { code_point } => {
            say!(
                lang,
                "文件含有控制字符 U+{code_point:04X}",
                "the file holds the control character U+{code_point:04X}"
            )
        }
        Problem::Syntax { detail } => {
            say!(lang, "YAML 语法错误（{detail}）", "this is not YAML ({detail})")
        }
        Problem::TooDeep { max } => {
            say!(lang, "嵌套超过 {max} 层", "nested deeper than {max} levels")
        }
        Problem::TooComplex => {
            say!(lang, "内容过多（含别名展开）", "too many values, aliases included")
        }
        Problem::SeveralDocuments => {
            say!(lang, "文件含有多个 YAML 文档", "the file holds more than one YAML document")
        }
        Problem::RecursiveAlias => say!(lang, "别名引用了自身", "an alias contains itself"),
        Problem::TagRefused { tag } => {
            say!(lang, "不支持 YAML 标签 '{tag}'", "the YAML tag '{tag}' is not accepted")
        }
        Problem::TopLevel { found: was } => {
            let was = found(*was, lang);
            say!(
                lang,
                "顶层必须是 YAML mapping，实际是{was}",
                "the top level must be a mapping, got {was}"
            )
        }
        Problem::DuplicateKey { key, first_line } => say!(
            lang,
            "字段 '{key}' 重复，第 {first_line} 行已经写过",
            "the key '{key}' is given twice, first on line {first_line}"
        ),
        Problem::KeyNotText { found: was } => {
            let was = found(*was, lang);
            say!(lang, "字段名必须是字符串，实际是{was}", "a key must be a string, got {was}")
        }
        Problem::MergeKey => say!(lang, "不支持合并键 '<<'", "the merge key '<<' is not accepted"),
        Problem::UnknownKey { key, nearest: Some(nearest) } => {
            say!(
                lang,
                "未知字段 '{key}'，是否想写 '{nearest}'？",
                "unknown key '{key}'; did you mean '{nearest}'?"
            )
        }
        Problem::UnknownKey { key, nearest: None } => {
            say!(lang, "未知字段 '{key}'", "unknown key '{key}'")
        }
        Problem::WrongType { wanted: want, found: was } => {
            let (want, was) = (wanted(*want, lang), found(*was, lang));
            say!(lang, "必须是{want}，实际是{was}", "must be {want}, got {was}")
        }
        Problem::NeedsQuotes { found: was } => {
            let was = found(*was, lang);
            say!(
                lang,
                "必须是字符串，未加引号的写法会被读成{was}",
                "must be a string; without quotes this reads as {was}"
            )
        }
        Problem::Empty => say!(lang, "不能为空", "must not be empty"),
        Problem::EmptyList => say!(lang, "列表不能为空", "the list must not be empty"),
        Problem::Required => say!(lang, "必须填写", "must be given"),
        Problem::UnsupportedKind { value } => {
            say!(lang, "不支持的任务类型 '{value}'", "unsupported job kind '{value}'")
        }
        Problem::UnsupportedVersion { value } => {
            say!(lang, "不支持的 schema 版本 '{value}'", "unsupported schema version '{value}'")
        }
        Problem::BadName { value } => {
            say!(lang, "任务名 '{value}' 不合法", "'{value}' is not a valid task name")
        }
        Problem::NameLikeJobId { value } => {
            say!(
                lang,
                "任务名 '{value}' 与任务 ID 的格式相同",
                "the task name '{value}' looks like a job id"
            )
        }
        Problem::NameReserved { value } => {
            say!(lang, "任务名 '{value}' 是保留字", "the task name '{value}' is a reserved word")
        }
        Problem::TooLong { max, unit: LengthUnit::Characters } => {
            say!(
                lang,
                "内容过长，最多 {max} 个字符",
                "too long, at most {max} characters are allowed"
            )
        }
        Problem::TooLong { max, unit: LengthUnit::Bytes } => {
            say!(lang, "内容过长，最多 {max} 字节", "too long, at most {max} bytes are allowed")
        }
        Problem::ForbiddenCharacter { code_point } => {
            say!(
                lang,
                "含有不允许的字符 U+{code_point:04X}",
                "holds the character U+{code_point:04X}, which is not allowed here"
            )
        }
        Problem::BadDuration { value } => {
            say!(lang, "时长 '{value}' 不合法", "'{value}' is not a valid duration")
        }
        Problem::DurationTooLong { max_days } => {
            say!(lang, "时长超过 {max_days} 天", "the duration is longer than {max_days} days")
        }
        Problem::CondaAndRequirements => say!(
            lang,
            "environment.conda 和 environment.requirements 不能同时填写",
            "environment.conda and environment.requirements cannot be given together"
        ),
        Problem::ArgsAfterScript => say!(
            lang,
            "args 无法追加到这样的 command（多行脚本、行尾注释或运算符）",
            "args cannot be appended to this command (several lines, a trailing comment or operator)"
        ),
        Problem::BadEnvName { name } => {
            say!(
                lang,
                "环境变量名 '{name}' 不合法",
                "'{name}' is not a valid environment variable name"
            )
        }
        Problem::ReservedEnvName { name } => {
            say!(
                lang,
                "环境变量 '{name}' 由平台设置",
                "the environment variable '{name}' is set by the platform"
            )
        }
        Problem::BadImage => say!(lang, "镜像地址不合法", "not a valid image reference"),
        Problem::OutOfRange { min, max } => {
            say!(
                lang,
                "必须是 {min} 到 {max} 之间的整数",
                "must be a whole number from {min} to {max}"
            )
        }
        Problem::BadSkuKey { value } => {
            say!(
                lang,
                "'{value}' 不是 Offer 的 SKU KEY",
                "'{value}' is not the SKU KEY of an offer"
            )
        }
        Problem::PathAbsolute => say!(lang, "必须是相对路径", "must be a relative path"),
        Problem::PathOutside => say!(lang, "路径不能包含 '..'", "the path must not hold '..'"),
        Problem::PathBackslash => {
            say!(lang, "路径不能包含反斜杠", "the path must not hold a backslash")
        }
        Problem::PathRoot => say!(lang, "必须是单独的目录", "must be a folder of its own"),
        Problem::PathTwice { first_index } => {
            let first = first_index + 1;
            say!(lang, "与第 {first} 项的路径相同", "the same path as element {first}")
        }
        Problem::ModelScheme => say!(lang, "不支持的模型来源", "unsupported model source"),
        Problem::ModelName => say!(
            lang,
            "模型来源缺少合法的 org/model 名称",
            "the model source has no proper org/model"
        ),
        Problem::GpuMissing => say!(
            lang,
            "resources.gpuType 和 resources.gpuSkuKey 至少填写一个",
            "at least one of resources.gpuType and resources.gpuSkuKey is needed"
        ),
    }
}

pub(super) fn remedy(problem: &Problem, lang: Lang) -> String {
    match problem {
        Problem::FileTooLarge { .. } | Problem::TooDeep { .. } | Problem::TooComplex => say!(
            lang,
            "确认 -f 指向的是任务 YAML，并删去无关内容",
            "check that this is the task YAML and remove what does not belong there"
        ),
        Problem::NotUtf8 => say!(lang, "把文件另存为 UTF-8", "save the file as UTF-8"),
        Problem::ControlCharacter { .. } => {
            say!(
                lang,
                "删除该字符，或在双引号字符串中用转义书写",
                "remove it, or write it as an escape in double quotes"
            )
        }
        Problem::Syntax { .. } => {
            say!(
                lang,
                "检查这一行附近的缩进、冒号和引号",
                "check indentation, colons and quotes around this line"
            )
        }
        Problem::SeveralDocuments => say!(
            lang,
            "每个文件只写一个任务，删除多余的 '---'",
            "write one task per file and remove the extra '---'"
        ),
        Problem::RecursiveAlias | Problem::MergeKey => {
            say!(lang, "把内容直接写出来", "write the values out")
        }
        Problem::TagRefused { .. } => {
            say!(lang, "删除该标签，只写值", "remove the tag and keep the plain value")
        }
        Problem::TopLevel { .. } => say!(
            lang,
            "按 job、environment、resources、storage 等字段书写",
            "write the fields job, environment, resources and storage"
        ),
        Problem::DuplicateKey { .. } => say!(lang, "保留其中一个", "keep one of them"),
        Problem::KeyNotText { .. } => say!(lang, "给字段名加上引号", "put the key in quotes"),
        Problem::UnknownKey { nearest: Some(nearest), .. } => {
            say!(lang, "改为 '{nearest}'，或删除该字段", "write '{nearest}', or remove the key")
        }
        Problem::UnknownKey { nearest: None, .. } => {
            say!(lang, "检查拼写，或删除该字段", "check the spelling, or remove the key")
        }
        Problem::WrongType { wanted: want, .. } => {
            let want = wanted(*want, lang);
            say!(
                lang,
                "改写为{want}（不需要时删除该字段）",
                "write {want}, or remove the field if it is not needed"
            )
        }
        Problem::NeedsQuotes { .. } => {
            say!(
                lang,
                "给值加上引号，例如 \"…\"；空字符串写 \"\"",
                "quote it, such as \"…\"; an empty string is \"\""
            )
        }
        Problem::Empty | Problem::EmptyList => {
            say!(lang, "填写内容，或删除该字段", "give a value, or remove the field")
        }
        Problem::Required => say!(lang, "补充该字段", "add the field"),
        Problem::UnsupportedKind { .. } => {
            say!(
                lang,
                "使用 Training、Inference 或 Notebook",
                "use Training, Inference or Notebook"
            )
        }
        Problem::UnsupportedVersion { .. } => say!(lang, "写 version: v1", "write version: v1"),
        Problem::BadName { .. } => say!(
            lang,
            "使用 1 到 63 个字母、数字、'.'、'_' 或 '-'，并以字母或数字开头",
            "use 1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit"
        ),
        Problem::NameLikeJobId { .. } | Problem::NameReserved { .. } => {
            say!(lang, "换一个任务名", "choose another name")
        }
        Problem::TooLong { .. } => say!(lang, "缩短内容", "make it shorter"),
        Problem::ForbiddenCharacter { .. } => say!(lang, "删除该字符", "remove the character"),
        Problem::BadDuration { .. } => say!(
            lang,
            "写 -1（不限时），或 30m、8h、7d 这样的正时长，或秒数",
            "write -1 (no limit), a positive duration such as 30m, 8h or 7d, or seconds"
        ),
        Problem::DurationTooLong { .. } => {
            say!(
                lang,
                "写更短的时长，或 -1（不限时）",
                "write a shorter duration, or -1 for no limit"
            )
        }
        Problem::CondaAndRequirements => say!(lang, "二者选一", "choose one of the two"),
        Problem::ArgsAfterScript => say!(
            lang,
            "把参数写进 command，或把 command 写成列表",
            "write the arguments into the command, or write the command as a list"
        ),
        Problem::BadEnvName { .. } => say!(
            lang,
            "使用字母、数字和下划线，且不以数字开头",
            "use letters, digits and underscores, not beginning with a digit"
        ),
        Problem::ReservedEnvName { .. } => say!(
            lang,
            "换一个不以 RUNWHERE_ 或 RUNW_ 开头的名称",
            "choose a name that does not begin with RUNWHERE_ or RUNW_"
        ),
        Problem::BadImage => {
            say!(
                lang,
                "写成 registry.example.com/team/image:tag 的形式",
                "write it like registry.example.com/team/image:tag"
            )
        }
        Problem::OutOfRange { min, max } => {
            say!(
                lang,
                "写 {min} 到 {max}，不加引号和前导零",
                "write {min} to {max}, without quotes or leading zeros"
            )
        }
        Problem::BadSkuKey { .. } => say!(
            lang,
            "从 runwhere price list 复制 8 个大写字母的 SKU KEY，或五段的 offer_key（provider/region/zone/billing_model/instance_type）",
            "copy the 8 capital letters of SKU KEY from runwhere price list, or a five-part offer_key (provider/region/zone/billing_model/instance_type)"
        ),
        Problem::PathAbsolute | Problem::PathOutside => say!(
            lang,
            "写工作目录之内的相对路径，例如 '.' 或 'src'",
            "write a path below the work directory, such as '.' or 'src'"
        ),
        Problem::PathBackslash => say!(lang, "用 '/' 分隔目录", "separate folders with '/'"),
        Problem::PathRoot => say!(lang, "写一个子目录", "name a folder below it"),
        Problem::PathTwice { .. } => {
            say!(lang, "为每项写不同的路径", "give each element a path of its own")
        }
        Problem::ModelScheme | Problem::ModelName => say!(
            lang,
            "使用 huggingface://org/model、hf://org/model 或 modelscope://org/model",
            "use huggingface://org/model, hf://org/model or modelscope://org/model"
        ),
        Problem::GpuMissing => say!(
            lang,
            "在 YAML 填 resources.gpuType 或 resources.gpuSkuKey（runwhere price list 查 SKU KEY）",
            "give resources.gpuType or resources.gpuSkuKey in the YAML (runwhere price list shows the SKU KEY)"
        ),
    }
}

pub(super) fn not_served(what: NotServed, lang: Lang) -> String {
    let path = what.path();
    match what {
        NotServed::Inference => say!(
            lang,
            "{path}：暂不支持 Inference 任务",
            "{path}: Inference jobs are not served yet"
        ),
        NotServed::Notebook => {
            say!(lang, "{path}：暂不支持 Notebook 任务", "{path}: Notebook jobs are not served yet")
        }
        NotServed::Conda | NotServed::Requirements | NotServed::Models => {
            say!(lang, "暂不支持 {path}", "{path} is not served yet")
        }
    }
}

pub(super) fn not_served_remedy(what: NotServed, lang: Lang) -> String {
    match what {
        NotServed::Inference | NotServed::Notebook => {
            say!(lang, "使用 kind: Training", "use kind: Training")
        }
        NotServed::Conda | NotServed::Requirements => say!(
            lang,
            "删除该字段，使用已含依赖的环境，或在 command 中安装依赖",
            "remove the field and use an environment that has the dependencies, or install them in the command"
        ),
        NotServed::Models => {
            say!(
                lang,
                "删除该字段，在程序中下载模型",
                "remove the field and download the models in the program"
            )
        }
    }
}

/// Why a field has its value, for `--explain`.
pub(super) fn reason(field: &str, source: SettingSource, lang: Lang) -> String {
    if source == SettingSource::UserYaml {
        return say!(lang, "YAML 中填写", "given in the YAML");
    }
    match field {
        "kind" => say!(lang, "未填时按 Training 处理", "without it a task is a Training"),
        "job.maxDuration" => say!(
            lang,
            "未填时不限制运行时长",
            "without it a task is never stopped for its duration"
        ),
        "resources.gpuNum" => say!(lang, "未填时使用 1 张 GPU", "without it a task has one GPU"),
        "environment.command" => {
            say!(lang, "Training 未填时的启动命令", "what a Training without a command runs")
        }
        _ => say!(lang, "未填时使用平台默认值", "the platform's default"),
    }
}
