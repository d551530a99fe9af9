//! How a command fails.

use crate::terminal;
use crate::texts::{Lang, Text};

/// A failure with its code.
#[derive(Debug)]
pub(super) struct ElFailure {
    pub(super) code: String,
    /// Boxed: every call of the program returns one of these, or not.
    pub(super) message: Box<Text>,
    pub(super) hint: Option<[&'static str; 2]>,
    pub(super) status: Option<u16>,
    pub(super) exit: u8,
    pub(super) retry_after: Option<u64>,
}

pub(super) type Outcome<T = u8> = Result<T, ElFailure>;

impl ElFailure {
    /// Something on this machine.
    pub(super) fn local(code: &str, message: Text) -> Self {
        Self {
            code: code.to_owned(),
            message: Box::new(message),
            hint: None,
            status: None,
            exit: 1,
            retry_after: None,
        }
    }

    /// Wrong input: exit code 2.
    pub(super) fn usage(message: Text) -> Self {
        Self { exit: 2, ..Self::local("INVALID_INPUT", message) }
    }

    pub(super) fn hint(mut self, zh: &'static str, en: &'static str) -> Self {
        self.hint = Some([zh, en]);
        self
    }

    pub(super) fn print(&self, lang: Lang) {
        let status = self.status.map(|status| format!(" (HTTP {status})")).unwrap_or_default();
        eprintln!(
            "{}: {}{status}",
            terminal::one_line(&self.code),
            terminal::one_line(self.message.get(lang))
        );
        let hint = self.hint.or_else(|| known_hint(&self.code, self.status));
        if let Some([zh, en]) = hint {
            match lang {
                Lang::Zh => eprintln!("提示：{zh}"),
                Lang::En => eprintln!("Hint: {en}"),
            }
        }
    }
}

fn known_hint(code: &str, status: Option<u16>) -> Option<[&'static str; 2]> {
    Some(match (code, status) {
        ("UNAUTHENTICATED", _) | (_, Some(401)) => [
            "执行 el auth login 登录，或用 el auth config set api-key --stdin 保存 API key",
            "log in with `el auth login`, or store a key with `el auth config set api-key --stdin`",
        ],
        ("RUNNER_NOT_FOUND" | "RUNNER_VERSION_AMBIGUOUS" | "INVALID_RUNNER", _) => [
            "用 el runner list --json 查可用的 namespace/name@commit",
            "see `el runner list --json` for readable namespace/name@commit",
        ],
        ("JOB_REQUEST_CONFLICT", _) => [
            "输入有变化时请使用新的 --request-id",
            "use a new --request-id where the input has changed",
        ],
        ("NETWORK_ERROR", _) => [
            "检查服务地址（el auth config show）和网络；提交可用同一 request id 重试",
            "check the server's address (`el auth config show`) and the network; a submit can be repeated with its request id",
        ],
        (_, Some(403)) => [
            "该 API key 没有此权限，请联系项目管理员",
            "this key does not allow it; ask the project's administrator",
        ],
        _ => return None,
    })
}
