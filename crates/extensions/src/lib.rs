//! Custom resources: what is defined by CustomResourceDefinition objects is served like everything else.
//!
//! Each server follows the stored definitions in its cache, judges their names, tells in their status what became of them, and
//! contributes what each of them defines to the surface ([`Extensions`]). Servers on one store do the same without knowing of each
//! other: what one has written to a status the others find there, and who was slower is told by a conflict. From the
//! definition to what is served there is no state: [`contribution`] reads the one and makes the other. What objects may say is the
//! schema's matter (`schema`); webhooks that lead their versions to each other are called by `keelson-outbound`.

mod approval;
mod by_group;
mod catch_up;
mod conditions;
mod contribution;
mod definition;
mod emptying;
mod extensions;
mod names;
mod regenerations;
mod schema;
mod serving;
mod status;

pub use contribution::of_program;
pub use extensions::{Extensions, SchemaCheck};
pub use regenerations::{RegeneratedVersion, Regeneration, Regenerations};
