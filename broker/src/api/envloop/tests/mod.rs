//! The routes over a real store, driver and registry, with a scripted cloud and images that exist.

mod bench;
mod checkpoints;
mod content;
mod doors;
mod fuzz;
mod pages;
mod profiles;
mod site;
mod tenants;
mod texts;

use bench::{Bench, Reply};
