// Finds or builds the programs of the control plane, so that whatever starts it next has them at once.
import { findBinaries } from './binary.ts'

await findBinaries()
