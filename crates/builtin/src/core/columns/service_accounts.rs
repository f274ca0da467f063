//! Service accounts.
//!
//! Which secrets they name is not shown.

use keelson_tables::column::{AGE, NAME};
use keelson_tables::printer::Printer;

pub(super) const SERVICE_ACCOUNT: Printer = Printer::new(&[NAME, AGE], |of| vec![of.name(), of.age()]);
