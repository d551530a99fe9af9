//! Why a server cannot run, as people are told it.

use std::io;
use std::net::SocketAddr;

use super::data_dir::DataDirError;
use super::marker::MarkerError;
use super::running::ServeError;
use crate::api::text::Words;
use crate::server::BindError;

impl ServeError {
    /// What is wrong.
    pub fn message(&self) -> Words {
        match self {
            Self::Bind(BindError::Address { address, source }) => {
                let cause = cause(source);
                Words::new(
                    format!("无法监听 {address}：{}", cause.zh),
                    format!("cannot listen on {address}: {}", cause.en),
                )
            }
            Self::Bind(BindError::Pem { path, reason }) => {
                let path = path.display();
                Words::new(
                    format!("TLS 文件 {path} 不可用：{reason}"),
                    format!("the TLS file {path} cannot be used: {reason}"),
                )
            }
            Self::DataDir(DataDirError::Locked { root, pid }) => {
                let root = root.display();
                Words::new(
                    format!("数据目录 {root} 正被另一个服务使用（进程 {pid}）"),
                    format!("the data folder {root} is used by another server (process {pid})"),
                )
            }
            Self::DataDir(DataDirError::Foreign(root)) => {
                let root = root.display();
                Words::new(
                    format!("数据目录 {root} 属于其他用户"),
                    format!("the data folder {root} belongs to another user"),
                )
            }
            Self::DataDir(DataDirError::Damaged(path)) => {
                let path = path.display();
                Words::new(format!("文件 {path} 已损坏"), format!("{path} is damaged"))
            }
            Self::DataDir(DataDirError::Io { path, source })
            | Self::Marker(MarkerError::Io { path, source })
            | Self::Io { path, source } => {
                let (path, cause) = (path.display(), cause(source));
                Words::new(
                    format!("无法读写 {path}：{}", cause.zh),
                    format!("{path}: {}", cause.en),
                )
            }
            Self::LocalExec(address) => Words::new(
                format!("{address} 可从其他机器访问，因此不能在本机运行任务"),
                format!(
                    "{address} can be reached from other machines, so jobs may not run on this one"
                ),
            ),
            Self::Config(error) => same("服务配置有误", "the settings are not valid", error),
            Self::Fx(error) => same("config.toml 的汇率有误", "config.toml", error),
            Self::Open(error) => same("无法打开数据库", "the database cannot be opened", error),
            Self::Store(error) | Self::Marker(MarkerError::Store(error)) => {
                same("数据库出错", "the database failed", error)
            }
            Self::Blobs(error) => same("文件内容不可用", "stored files cannot be used", error),
            Self::Logs(error) => same("日志不可用", "stored logs cannot be used", error),
            Self::Images(error) => {
                same("无法读取镜像仓库", "image registries cannot be read", error)
            }
            Self::Account(error) => same("无法创建 token", "no token could be made", error),
            Self::Local(error) => {
                same("无法使用本机运行任务", "this machine cannot run jobs", error)
            }
        }
    }

    /// What to do about it, where that is known.
    pub fn remedy(&self) -> Option<Words> {
        match self {
            Self::Bind(BindError::Address { address, source }) => {
                Some(listen_remedy(*address, source))
            }
            Self::Bind(BindError::Pem { .. }) => Some(Words::new(
                "检查证书链与私钥文件（PEM 格式）",
                "check the files of the certificate chain and the private key (PEM)",
            )),
            Self::DataDir(DataDirError::Locked { .. }) => Some(Words::new(
                "停止那个服务，或用 --data-dir 换一个目录",
                "stop that server, or choose another --data-dir",
            )),
            Self::DataDir(DataDirError::Foreign(_)) => {
                Some(Words::new("用 --data-dir 换一个目录", "choose another --data-dir"))
            }
            Self::DataDir(DataDirError::Damaged(_)) => {
                Some(Words::new("从备份恢复该文件", "restore it from a backup"))
            }
            Self::LocalExec(_) => Some(Words::new(
                "改为监听 127.0.0.1；若持有 token 的人都可以在本机运行程序，则加 --allow-local-exec",
                "listen on 127.0.0.1, or add --allow-local-exec if everybody with a token may run programs here",
            )),
            Self::DataDir(DataDirError::Io { .. })
            | Self::Io { .. }
            | Self::Marker(_)
            | Self::Config(_)
            | Self::Images(_)
            | Self::Fx(_)
            | Self::Open(_)
            | Self::Store(_)
            | Self::Blobs(_)
            | Self::Logs(_)
            | Self::Account(_)
            | Self::Local(_) => None,
        }
    }
}

fn same(zh: &str, en: &str, error: &dyn std::fmt::Display) -> Words {
    Words::new(format!("{zh}：{error}"), format!("{en}: {error}"))
}

/// The causes that people meet, in their language; the system's own words for the rest.
fn cause(error: &io::Error) -> Words {
    let (zh, en) = match error.kind() {
        io::ErrorKind::AddrInUse => ("地址已被占用", "the address is in use"),
        io::ErrorKind::AddrNotAvailable => {
            ("本机没有这个地址", "this machine does not have that address")
        }
        io::ErrorKind::PermissionDenied => ("没有权限", "permission denied"),
        io::ErrorKind::NotFound => ("不存在", "it does not exist"),
        io::ErrorKind::StorageFull => ("磁盘已满", "the disk is full"),
        io::ErrorKind::ReadOnlyFilesystem => ("文件系统只读", "the file system is read-only"),
        _ => return Words::new(error.to_string(), error.to_string()),
    };
    Words::new(zh, en)
}

fn listen_remedy(address: SocketAddr, error: &io::Error) -> Words {
    let free = SocketAddr::new(address.ip(), 0);
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => Words::new(
            "用 --listen 指定本机的地址，例如 --listen 127.0.0.1:8000",
            "give an address of this machine with --listen, for example --listen 127.0.0.1:8000",
        ),
        io::ErrorKind::PermissionDenied => Words::new(
            format!("用 --listen 换 1024 以上的端口，或用 --listen {free} 自动选一个空闲端口"),
            format!(
                "choose a port above 1023 with --listen, or let --listen {free} find a free one"
            ),
        ),
        _ => Words::new(
            format!(
                "停止占用该端口的程序，或用 --listen 换一个端口（--listen {free} 自动选一个空闲端口）"
            ),
            format!(
                "stop the program that uses the port, or choose another with --listen (--listen {free} finds a free one)"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Listen, Server};

    #[tokio::test]
    async fn a_taken_port_is_named_with_what_to_do_in_both_languages() {
        let listen = Listen { address: ([127, 0, 0, 1], 0).into(), tls: None };
        let first = Server::bind(&listen).await.unwrap();
        let taken = Listen { address: first.address(), tls: None };
        let error = ServeError::from(Server::bind(&taken).await.unwrap_err());
        let (message, remedy) = (error.message(), error.remedy().unwrap());
        assert_eq!(message.zh, format!("无法监听 {}：地址已被占用", first.address()));
        assert_eq!(
            message.en,
            format!("cannot listen on {}: the address is in use", first.address())
        );
        assert!(remedy.zh.contains("--listen 127.0.0.1:0"), "{remedy:?}");
        assert!(remedy.en.contains("--listen 127.0.0.1:0"), "{remedy:?}");
    }
}
