//! Texts of serve, token and the embedded server.

use super::macros::texts;

texts! {
    /// The server listens.
    serving(url) "✓ runwhere 服务器已启动：{url}" "✓ The runwhere server listens on {url}";
    /// The data folder.
    serving_data(path) "  数据目录: {path}" "  Data folder: {path}";
    /// Where the first token is.
    serving_token_file(path) "  首个 Token 已写入 {path}（0600）" "  The first token is in {path} (0600)";
    /// The first token itself, to a terminal only.
    serving_token(token) "  Token: {token}" "  Token: {token}";
    /// How to log in.
    serving_login(url) "  登录: runwhere login --endpoint {url}" "  To log in: runwhere login --endpoint {url}";
    /// Tokens cross the network.
    serving_plain(address) "{address} 可以从其他机器访问，且未启用 TLS：Token 会以明文经过网络；用 --tls-cert 和 --tls-key 加密" "{address} can be reached from other machines, without TLS: tokens cross the network in plain text; encrypt with --tls-cert and --tls-key";
    /// Jobs cannot run on this machine.
    serving_no_local(address) "{address} 可以从其他机器访问：不在本机运行任务（--allow-local-exec 允许）" "{address} can be reached from other machines: no jobs run on this one (--allow-local-exec allows them)";
    /// The address is taken.
    listen_taken(address) "地址 {address} 已被占用" "The address {address} is in use";
    /// The address is not allowed.
    listen_forbidden(address) "没有权限监听 {address}" "Listening on {address} is not permitted";
    /// The address belongs to another machine.
    listen_foreign(address) "本机没有地址 {address}" "This machine does not have the address {address}";
    /// The address cannot be used.
    listen_failed(address, error) "无法监听 {address}（{error}）" "Cannot listen on {address} ({error})";
    /// Remedy for these.
    listen_hint() "用 --listen 换一个地址，例如 --listen 127.0.0.1:8081" "Choose another address, such as --listen 127.0.0.1:8081";
    /// Pretending.
    serving_pretended() "--try-locally：本机假装拥有所需 GPU，仅供试用" "--try-locally: this machine pretends to have the wanted GPUs, only to try it out";
    /// Stopping.
    serving_ends() "正在关闭；运行中的任务不受影响" "Shutting down; running jobs go on";
    /// The server cannot start.
    serve_failed(reason) "服务器无法启动：{reason}" "The server cannot start: {reason}";
    /// The address is wrong.
    listen_invalid(text) "监听地址 '{text}' 无效：应为 IP:端口" "'{text}' is no address to listen on: write IP:port";
    /// A token was made.
    token_created(id) "✓ 已创建 Token {id}（只显示这一次）" "✓ Token {id} created (it is shown only this once)";
    /// A token was revoked.
    token_revoked(id) "✓ 已吊销 Token {id}" "✓ Token {id} revoked";
    /// No such token.
    token_unknown(id) "没有 Token '{id}'" "There is no token '{id}'";
    /// Remedy for [`token_unknown`].
    token_unknown_hint() "用 runwhere token list 查看" "runwhere token list shows them";
    /// No such project.
    project_unknown(id) "没有项目 '{id}'" "There is no project '{id}'";
    /// Remedy for [`project_unknown`].
    project_unknown_hint() "在数据目录的 config.toml 中加入 [projects.<id>]（可选 workspace），然后重启 runwhere serve" "Add [projects.<id>] (and workspace, if it is another tenant) to config.toml in the data folder, then restart runwhere serve";
    /// No tokens.
    no_tokens() "没有 Token" "No tokens";
    /// Column.
    token_column_id() "ID" "ID";
    /// Column.
    token_column_name() "名称" "NAME";
    /// Column.
    token_column_project() "项目" "PROJECT";
    /// Column.
    token_column_scopes() "权限" "SCOPES";
    /// Column.
    token_column_created() "创建时间" "CREATED";
    /// Column.
    token_column_expires() "过期时间" "EXPIRES";
    /// Column.
    token_column_revoked() "已吊销" "REVOKED";
    /// The data folder has no server.
    no_data_dir(path) "{path} 不是服务器的数据目录" "{path} is not the data folder of a server";
    /// Remedy for [`no_data_dir`].
    no_data_dir_hint() "先启动 runwhere serve，或用 --data-dir 指定" "Start runwhere serve first, or name it with --data-dir";
    /// A duration is wrong.
    duration_invalid(text) "时长 '{text}' 无效：例如 12h、30d" "'{text}' is no length of time: write 12h or 30d";
    /// The agent cannot work.
    agent_failed(reason) "agent 无法工作：{reason}" "The agent cannot work: {reason}";
    /// No such scope.
    scope_unknown(scopes) "权限 {scopes} 无效：可用 training.run、training.stop、job.read、runner.read、billing.read、metrics.read、admin" "Not every scope of {scopes} is known: use training.run, training.stop, job.read, runner.read, billing.read, metrics.read, admin";
    /// Whose tokens these are.
    tokens_of(path) "数据目录 {path} 的 Token" "Tokens of the data folder {path}";
    /// `token` with `--endpoint`.
    token_needs_no_endpoint(url) "token 命令直接读写服务器的数据目录，--endpoint {url} 不起作用" "token works on the data folder of a server and asks no server: --endpoint {url} means nothing here";
    /// Remedy for [`token_needs_no_endpoint`].
    token_needs_no_endpoint_hint() "在服务器那台机器上执行，用 --data-dir 指定它的数据目录" "Run it on the server's machine; --data-dir names its data folder";
    /// Another server has the data folder.
    data_dir_locked(path, pid) "数据目录 {path} 正被另一个服务器使用（pid {pid}）" "The data folder {path} is in use by another server (pid {pid})";
    /// Remedy for [`data_dir_locked`].
    data_dir_locked_hint(url, token) "登录到它：runwhere login --endpoint {url} < {token}，或用 --data-dir 换一个目录" "Log in to it: runwhere login --endpoint {url} < {token}, or choose another folder with --data-dir";
    /// Remedy for [`data_dir_locked`].
    data_dir_locked_hint_other() "停止它，或用 --data-dir 换一个目录" "Stop it, or choose another folder with --data-dir";
    /// Jobs would run here for everybody.
    local_exec(address) "{address} 可以从其他机器访问，因此不允许在本机运行任务" "{address} can be reached from other machines, so jobs may not run on this one";
    /// Remedy for [`local_exec`].
    local_exec_hint() "监听 127.0.0.1，或加 --allow-local-exec（任何持有 Token 的人都能在本机运行程序）" "Listen on 127.0.0.1, or add --allow-local-exec (everybody with a token can then run programs here)";
}
