//! Operators as people write them, each a process of its own, with webhooks of its own on its own objects.
//!
//! What is shown is what the operator writes: nothing here knows how its framework works.

mod python;
mod rust;
