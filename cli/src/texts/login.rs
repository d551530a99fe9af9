//! Texts of login, whoami and logout.

use super::macros::texts;

texts! {
    /// There is no login.
    not_logged_in() "未登录" "Not logged in";
    /// Remedy for [`not_logged_in`].
    not_logged_in_hint() "执行 runwhere login --endpoint <url>" "Run runwhere login --endpoint <url>";
    /// The prompt for the token.
    token_prompt() "Token：" "Token: ";
    /// No token was given.
    token_empty() "没有输入 Token" "No token was given";
    /// No address was given.
    endpoint_missing() "缺少 --endpoint" "--endpoint is missing";
    /// The server refuses the token.
    token_refused() "Token 无效或已过期" "The token is not valid or has expired";
    /// The login is stored.
    logged_in(user, endpoint) "✓ 已登录 {endpoint}（{user}）" "✓ Logged in to {endpoint} ({user})";
    /// A token crosses the network in plain text.
    plain_http() "连接未加密：Token 会以明文经过网络，建议使用 https" "The connection is not encrypted: the token crosses the network in plain text; use https";
    /// Address and token are removed.
    logged_out() "✓ 已退出登录：已删除本机保存的服务器地址和 Token" "✓ Logged out: the stored server address and token are removed";
    /// There was no token.
    was_not_logged_in() "本来就没有登录" "There was no login";
    /// A variable still holds a token.
    token_in_env() "环境变量 RUNW_TOKEN 仍然有效" "The variable RUNW_TOKEN still counts";
    /// whoami: user.
    whoami_user(user) "用户: {user}" "User: {user}";
    /// whoami: organisation.
    whoami_org(org) "组织: {org}" "Organisation: {org}";
    /// whoami: server.
    whoami_endpoint(endpoint) "服务器: {endpoint}" "Server: {endpoint}";
    /// whoami: project.
    whoami_project(project) "项目: {project}" "Project: {project}";
}
