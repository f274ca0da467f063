//! Service accounts.
//!
//! Which secrets they name is not shown.

use crate::column::{AGE, NAME};
use crate::printer::Printer;

pub(super) const SERVICE_ACCOUNT: Printer = Printer::new(&[NAME, AGE], |of| vec![of.name(), of.age()]);
