//! What the platform adds to a log: codes with parameters, sentences made when read.

use jiff::Timestamp;
use runwhere_engine::{EndReason, PlatformLine};
use runwhere_model::Lang;
use serde::{Deserialize, Serialize};

/// One thing the platform says.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "note")]
pub enum Note {
    /// The machine only pretends to have the GPUs.
    Pretended {
        /// How many and which.
        gpus: String,
    },
    /// Plain processes use no image.
    ImageUnused {
        /// The image.
        image: String,
    },
    /// A phase of every run.
    Phase {
        /// Which.
        line: PlatformLine,
    },
    /// The provider has no room now; the trial waits.
    Waiting {
        /// What the provider said.
        detail: String,
    },
    /// A user asked for the end.
    Stopping,
    /// The node will be taken back.
    Reclaiming,
    /// The time is up.
    TimedOut,
    /// It ended otherwise than by its program's own success.
    Ended {
        /// Why.
        reason: EndReason,
        /// The program's exit code.
        exit_code: Option<i32>,
        /// The signal that ended the program.
        signal: Option<i32>,
    },
}

/// A note in a log. The key makes a repeated append harmless.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct NoteRecord {
    /// Unique in its log.
    pub key: String,
    /// When it was said.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub note: Note,
}

impl Note {
    /// The line in a language, with the prefix of platform lines.
    pub fn say(&self, lang: Lang) -> String {
        format!("[runwhere] {}", self.sentence(lang))
    }

    /// The same without the prefix.
    pub fn sentence(&self, lang: Lang) -> String {
        use Lang::{En, Zh};
        match (self, lang) {
            (Self::Phase { line }, lang) => phase(*line, lang).to_owned(),
            (Self::Pretended { gpus }, Zh) => format!("本机假装有 {gpus}，仅供试跑"),
            (Self::Pretended { gpus }, En) => {
                format!("This machine pretends to have {gpus}, for trying only")
            }
            (Self::ImageUnused { image }, Zh) => {
                format!("本机直接运行进程，不使用镜像 {}", one_line(image))
            }
            (Self::ImageUnused { image }, En) => {
                format!("Plain processes run here, the image {} is not used", one_line(image))
            }
            (Self::Waiting { detail }, Zh) => {
                format!("暂无可用机器，继续等待：{}", one_line(detail))
            }
            (Self::Waiting { detail }, En) => {
                format!("No machine is free, still waiting: {}", one_line(detail))
            }
            (Self::Stopping, Zh) => "正在停止任务...".to_owned(),
            (Self::Stopping, En) => "Stopping the task...".to_owned(),
            (Self::Reclaiming, Zh) => "云厂商将收回节点，正在停止任务...".to_owned(),
            (Self::Reclaiming, En) => {
                "The provider takes the node back, stopping the task...".to_owned()
            }
            (Self::TimedOut, Zh) => "已达到 maxDuration，正在停止任务...".to_owned(),
            (Self::TimedOut, En) => "maxDuration is reached, stopping the task...".to_owned(),
            (Self::Ended { reason, exit_code, signal }, lang) => {
                let mut text = ended(reason, lang);
                // Whatever ended a program that was stopped or never started is not its own doing.
                let (code, signal) = match reason {
                    EndReason::ProgramFailed => (*exit_code, *signal),
                    _ => (None, None),
                };
                match (code, signal) {
                    (Some(code), _) if code != 0 && lang == Zh => {
                        text.push_str(&format!("（退出码 {code}）"));
                    }
                    (Some(code), _) if code != 0 => text.push_str(&format!(" (exit code {code})")),
                    (None, Some(signal)) if lang == Zh => {
                        text.push_str(&format!("（信号 {signal}）"));
                    }
                    (None, Some(signal)) => text.push_str(&format!(" (signal {signal})")),
                    (Some(_) | None, _) => {}
                }
                if let Some(detail) = reason.detail() {
                    text.push_str(if lang == Zh { "：" } else { ": " });
                    text.push_str(&one_line(detail));
                }
                text
            }
        }
    }
}

fn phase(line: PlatformLine, lang: Lang) -> &'static str {
    match (line, lang) {
        (PlatformLine::CreatingNode, Lang::Zh) => "正在创建 GPU 节点...",
        (PlatformLine::CreatingNode, Lang::En) => "Creating the GPU node...",
        (PlatformLine::NodeJoining, Lang::Zh) => "节点启动中，加入集群...",
        (PlatformLine::NodeJoining, Lang::En) => "The node is starting and joining...",
        (PlatformLine::GpuReady, Lang::Zh) => "GPU 就绪，部署任务...",
        (PlatformLine::GpuReady, Lang::En) => "The GPU is ready, deploying the task...",
        (PlatformLine::Running, Lang::Zh) => "任务运行中",
        (PlatformLine::Running, Lang::En) => "The task is running",
    }
}

fn ended(reason: &EndReason, lang: Lang) -> String {
    let (zh, en) = match reason {
        EndReason::Succeeded => ("任务已完成", "The task has succeeded"),
        EndReason::ProgramFailed => ("任务失败", "The task has failed"),
        EndReason::Stopped => ("任务已停止", "The task was stopped"),
        EndReason::MaxDurationExceeded => {
            ("任务达到 maxDuration，已停止", "The task reached maxDuration and was stopped")
        }
        EndReason::Lost { .. } => {
            ("任务运行中断，不会自动重跑", "The run was lost and is not repeated")
        }
        EndReason::Reclaimed { .. } => (
            "节点被云厂商收回，任务中断，不会自动重跑",
            "The provider took the node back; the run is not repeated",
        ),
        EndReason::NoCapacity { .. } => ("没有可用机器", "No machine could be rented"),
        EndReason::PriceChanged => {
            ("价格已高于提交时的上限", "The price rose above the accepted one")
        }
        EndReason::BudgetExceeded => ("预算已用完", "The budget is used up"),
        EndReason::LaunchRefused { .. } => {
            ("云厂商拒绝创建节点", "The provider refused the launch")
        }
        EndReason::NodeFailed { .. } => ("节点不可用", "The node never became usable"),
        EndReason::PrepareFailed { .. } => {
            ("工作目录准备失败", "The work folder could not be prepared")
        }
        EndReason::LimitExceeded { .. } => {
            ("程序超出资源上限，已结束", "The program was ended since it passed a limit")
        }
        EndReason::StartFailed { .. } => ("程序无法启动", "The program could not be started"),
    };
    match lang {
        Lang::Zh => zh.to_owned(),
        Lang::En => en.to_owned(),
    }
}

/// A foreign text on one line, without terminal codes, at most 500 characters.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(500).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(reason: EndReason, exit_code: Option<i32>, signal: Option<i32>) -> [String; 2] {
        let note = Note::Ended { reason, exit_code, signal };
        [note.sentence(Lang::Zh), note.sentence(Lang::En)]
    }

    #[test]
    fn an_end_names_its_reason_and_an_exit_only_where_it_was_the_programs_own() {
        assert_eq!(
            end(EndReason::ProgramFailed, Some(3), None),
            ["任务失败（退出码 3）", "The task has failed (exit code 3)"]
        );
        assert_eq!(
            end(EndReason::ProgramFailed, None, Some(11)),
            ["任务失败（信号 11）", "The task has failed (signal 11)"]
        );
        assert_eq!(
            end(EndReason::MaxDurationExceeded, None, Some(15)),
            ["任务达到 maxDuration，已停止", "The task reached maxDuration and was stopped"]
        );
        let detail = "nosuchprog: No such file\u{1b}[31m".to_owned();
        assert_eq!(
            end(EndReason::StartFailed { detail }, Some(127), None),
            [
                "程序无法启动：nosuchprog: No such file [31m",
                "The program could not be started: nosuchprog: No such file [31m",
            ]
        );
    }
}
