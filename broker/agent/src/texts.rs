//! Lines that the agent itself puts into a trial's log.

/// From here on output is only counted.
pub(crate) fn log_cap_reached(limit: u64) -> String {
    format!("[runwhere] 日志已达上限 {limit} 字节,之后的输出只计数,不保存\n")
}

/// What was in the program's pipes is gone with the agent that read them.
pub(crate) fn log_broken_off() -> &'static str {
    "[runwhere] 节点程序中断过,中断时还没有读到的输出没有保存\n"
}

/// The container engine was away while the container ran; or the program has closed its output.
pub(crate) fn output_broken_off() -> &'static str {
    "[runwhere] 程序的输出断开了(容器引擎中断过,或程序自己关闭了输出),此后的输出没有保存\n"
}

/// How a program ended that is said to have failed, and no code tells more.
pub(crate) fn exit_unknown(reason: &str) -> String {
    format!("[runwhere] 程序的退出码未知:{reason}\n")
}

/// What the cap or a full disk has cost.
pub(crate) fn log_dropped(bytes: u64) -> String {
    format!("[runwhere] 有 {bytes} 字节的输出没有保存\n")
}

/// Where there is no container engine.
pub(crate) fn image_unused(image: &str) -> String {
    let image: String =
        image.chars().map(|c| if c.is_control() { ' ' } else { c }).take(600).collect();
    format!("[runwhere] 本机直接运行进程，不使用镜像 {image}\n")
}
