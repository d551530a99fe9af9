//! Lines that the agent itself puts into a trial's log.

/// The process runtime ignores the image.
pub(crate) fn image_not_used(image: &str) -> String {
    format!("[runwhere] 进程运行时不使用镜像:{}\n", one_line(image))
}

/// There is no such GPU here.
pub(crate) fn gpus_pretended(count: u32, model: &str) -> String {
    format!("[runwhere] 本机没有所需的 GPU,按 {count} x {} 模拟运行\n", one_line(model))
}

/// From here on output is only counted.
pub(crate) fn log_cap_reached(limit: u64) -> String {
    format!("[runwhere] 日志已达上限 {limit} 字节,之后的输出只计数,不保存\n")
}

/// What the cap or a full disk has cost.
pub(crate) fn log_dropped(bytes: u64) -> String {
    format!("[runwhere] 有 {bytes} 字节的输出没有保存\n")
}

// A name must not be able to forge a second platform line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_hostile_image_name_stays_on_its_line() {
        let line = super::image_not_used("x\n[runwhere] forged\u{1b}[2J");
        assert_eq!(line.matches('\n').count(), 1);
        assert!(!line.contains('\u{1b}'));
    }
}
