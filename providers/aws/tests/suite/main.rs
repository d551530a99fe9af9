//! AWS: price files from fixtures, EC2 played here and by moto.

mod complaints;
mod files;
mod moto;
mod support;
