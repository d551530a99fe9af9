//! AWS: price files from fixtures, EC2 by moto.

mod files;
mod moto;
mod support;
