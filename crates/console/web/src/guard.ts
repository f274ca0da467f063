// The second protection against prototype pollution: the prototypes that all values inherit from are frozen.
//
// This module is loaded before all others. The first protection is that external names access only own properties
// (`lib/own.ts`).

for (const { prototype } of [Object, Array, Function]) Object.freeze(prototype);

export {};
