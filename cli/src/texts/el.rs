//! Texts of the `el` command, but for its help pages.

use super::macros::texts;

texts! {
    /// Before a submit is sent.
    request_id(id) "request id：{id}（结果不确定时，以同一 id 和相同输入重试）" "request id: {id} (repeat with it and the same input where the result is uncertain)";
    /// `job submit --wait`, once it is accepted.
    waiting(id) "任务 {id} 已接受，等待结束（Ctrl-C 只停止等待；el job stop {id} 停止任务）" "job {id} is accepted; waiting for its end (Ctrl-C ends only the wait, el job stop {id} the job)";
    /// No connection.
    unreachable(reason) "无法连接服务器：{reason}" "the server cannot be reached: {reason}";
    /// An answer that is none of ours.
    answer_not_json() "服务器的回答不是 JSON；请检查服务地址" "the server's answer is not JSON; check the base URL";
    /// An answer without bound.
    answer_too_large() "服务器的回答过大" "the server's answer is too large";
    /// A refusal without a word.
    refused() "请求被拒绝" "the request was refused";
    /// A file.
    file_failed(path, error) "无法读写 {path}：{error}" "{path} cannot be read or written: {error}";
    /// Standard input.
    stdin_failed(error) "无法读取标准输入：{error}" "standard input cannot be read: {error}";
    /// A settings file that others can read.
    path_insecure(path) "{path} 必须只属于当前用户：不能是链接，目录权限 0700，文件权限 0600" "{path} must be ours alone: no link, folders 0700, files 0600";
    /// A settings file.
    file_invalid(path) "{path} 无效" "{path} is not valid";
    /// A settings file.
    file_too_large(path) "{path} 过大" "{path} is too large";
    /// Where settings lie.
    home_relative() "ENVLOOP_HOME 必须是绝对路径" "ENVLOOP_HOME must be an absolute path";
    /// Where settings lie.
    home_missing() "没有设置 HOME" "HOME is not set";
    /// An address.
    url_invalid() "服务地址的形式是 http(s)://host[:port]；http 只能用于本机" "a base URL is http(s)://host[:port], plain http only for this machine";
    /// A key.
    key_invalid() "API key 含有不允许的字符" "the API key has characters that no key has";
    /// Nothing to talk to.
    no_server() "没有配置服务地址" "no server is configured";
    /// A runner's name.
    runner_name() "Runner 的名称形式是 namespace/name" "a runner is named as namespace/name";
    /// A key on the command line.
    key_as_argument() "API key 不能写在命令行里；请用 --stdin" "a key is never given as an argument; use --stdin";
    /// `auth config set`.
    value_or_stdin() "请给出值，或用 --stdin" "give the value, or --stdin";
    /// `auth config set`.
    setting_unknown(name) "没有名为 {name} 的设置" "there is no setting {name}";
    /// `auth login`.
    login_open(code, address) "确认码：{code}\n打开：{address}" "Confirmation code: {code}\nOpen: {address}";
    /// `auth login`.
    login_denied() "登录被拒绝或取消" "the login was denied or cancelled";
    /// `auth login`.
    login_timeout() "没有人在限定时间内批准登录" "nobody approved the login in time";
    /// Ctrl-C.
    cancelled() "已取消" "cancelled";
    /// A name of an artifact.
    name_unsafe(name) "文件名 {name} 不安全，已拒绝；什么都没有下载" "the name {name} is refused; nothing was downloaded";
    /// A download.
    size_differs(path) "{path} 的大小与记录不符" "{path} has another size";
    /// A download.
    hash_differs(path) "{path} 的 SHA-256 与记录不符" "{path} has another SHA-256";
    /// A checkpoint.
    checkpoint_missing() "没有这个 checkpoint" "there is no such checkpoint";
    /// A checkpoint.
    address_missing(name) "没有 {name} 的下载地址" "there is no address for {name}";
    /// A log.
    log_without_cursor() "日志的这一页没有 cursor" "the log's page has no cursor";
    /// A log.
    log_collection(status) "日志不完整（{status}）" "the log is not complete ({status})";
    /// A log.
    log_truncated(bytes) "日志超过上限，有 {bytes} 字节没有保存" "the log passed its bound; {bytes} bytes were not kept";
    /// Git.
    git_missing(error) "无法启动 git：{error}" "git cannot be started: {error}";
    /// Git.
    git_refused(command, reason) "git {command} 失败：{reason}" "git {command} failed: {reason}";
    /// A work tree.
    tree_not_clean() "工作区不干净：请先提交或移除改动" "the work tree is not clean: commit or remove what has changed";
    /// A work tree.
    name_not_utf8(path) "{path}：文件名不是 UTF-8" "{path}: the name is not UTF-8";
    /// A runner's folder.
    runner_not_a_file(name) "{name} 不是文件；Runner 恰好由两个文件组成" "{name} is no file; a runner is exactly two files";
    /// `content publish`.
    version_needed(kind) "发布 {kind} 需要 --version" "--version is needed for {kind}";
    /// `content publish`.
    version_of_recipe() "--version：recipe 没有版本，以 manifest 摘要识别" "--version: recipes have none; they are known by their manifest's digest";
    /// `content publish`.
    content_name() "内容的名称形式是 namespace/name" "content is named as namespace/name";
    /// `content publish`.
    too_many_files(most) "超过 {most} 个文件；请打包" "more than {most} files; pack them into archives";
    /// `content publish`.
    plain_files_only(path) "{path}：只能发布普通文件" "{path}: only plain files can be published";
    /// `content get`.
    content_address() "内容的地址形式是 envloop://recipes/namespace/name@版本（或 datasets、plugins）" "content is named as envloop://recipes/namespace/name@revision (or datasets, plugins)";
    /// `content approve`.
    approval_address() "批准的对象是一个 plugin：envloop://plugins/namespace/name@版本" "an approval is of one plugin: envloop://plugins/namespace/name@revision";
    /// `job submit`.
    train_only() "--type：只支持 train" "--type: only train is served";
    /// `job submit`.
    file_not_object(path) "{path} 必须是一个 JSON 对象" "{path} must hold one JSON object";
    /// `job submit`.
    runner_needed() "需要 --runner namespace/name@COMMIT（或 --spec FILE）" "--runner namespace/name@COMMIT (or --spec FILE) is needed";
    /// `job submit`.
    command_invalid() "--command 必须含非空白内容，最多 65536 字节" "--command must hold something else than white space, at most 65536 bytes";
    /// `job submit`.
    gpu_type_blank() "--gpu-type 必须是 GPU 型号" "--gpu-type must name a GPU model";
    /// `job submit`.
    size_invalid(name, text) "{name}：应为 64Gi 这样的大小（Mi、Gi 或 Ti），而不是 {text}" "{name}: expected a size such as 64Gi (Mi, Gi or Ti), not {text}";
    /// `job submit`.
    trial_not_object() "--spec：每个 trial 必须是对象" "--spec: every trial must be an object";
    /// `job submit`.
    no_trials() "--spec：文件里既没有 trials 也没有 spec" "--spec: the file has neither trials nor spec";
    /// `job submit`.
    spec_not_object() "--spec：每个 spec 必须是对象" "--spec: every spec must be an object";
    /// `job submit`.
    resources_not_object() "--spec：resources 必须是对象" "--spec: resources must be an object";
}
