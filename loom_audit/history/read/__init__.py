"""What the log says: lists, single calls, trees and files at any point, each checked."""
