// The second wall against poisoned prototypes: those that every value inherits from can't be changed.
//
// Loaded before anything else. The first wall is that names from outside are only ever used for own properties (`lib/own.ts`).

for (const { prototype } of [Object, Array, Function]) Object.freeze(prototype);

export {};
