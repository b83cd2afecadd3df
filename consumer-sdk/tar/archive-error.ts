/** The archive itself is at fault: damaged, hostile, or something that another reader might take otherwise. */
export class ArchiveError extends Error {}
